"""Functions that make tensors: from data, from a rule, from a generator.

Each takes `device` (a spec; without it the default Context's), `dtype` and `requires_grad`. Shapes are written as
`zeros(2, 3)` or `zeros((2, 3))`. Defaults: float32, int64 for integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, prod
from operator import index as as_index
from typing import Any

import numpy as np

from vsl_compute import registry
from vsl_compute.backend import ComputeBackend
from vsl_compute.dispatch import asarray as upload
from vsl_compute.dispatch import numbers_of, require_fits
from vsl_compute.dispatch import run as launch
from vsl_compute.dispatch import upload_ahead as ahead
from vsl_compute.dtypes import DType, dtype_of, float32, int64
from vsl_compute.errors import AttributeValueError, OutOfMemoryError, ShapeError
from vsl_compute.random import Generator, draw, words_for
from vsl_compute.view import Layout, Shape

from .arguments import explain
from .autograd import node
from .autograd.context import default_context
from .methods.shapes import sizes
from .tensor import Tensor

Dtype = DType | str | None
Size = int | Sequence[int]


def _backend(device: str | None) -> ComputeBackend:
    return default_context().backend if device is None else registry.get(device)


def _leaf(raw: Any, requires_grad: bool) -> Tensor:
    result = Tensor(raw)
    return result.requires_grad_() if requires_grad else result


def tensor(data: Any, *, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of `data`: numbers, nested lists, NumPy arrays, tensors.

    Dtypes: Python floats become float32, ints int64, bools bool; arrays and tensors keep theirs unless `dtype` is given
    Errors: DTypeError for what is no array of numbers
    """
    if isinstance(data, Tensor):
        copied = data.detach().to(dtype=None if dtype is None else dtype_of(dtype), device=device)
        return _leaf((copied.clone() if copied.raw.buffer is data.raw.buffer else copied).raw, requires_grad)
    if isinstance(data, list | tuple) and any(isinstance(part, Tensor) for part in data):
        parts = [numbers_of("tensor", part) for part in data]
        if len(shapes := {part.shape for part in parts}) > 1:
            raise ShapeError(f"tensor: the parts have shapes {', '.join(map(str, sorted(shapes)))}; all must be alike")
        data = np.stack(parts)
    return _leaf(upload(_backend(device), data, dtype), requires_grad)


def upload_ahead(data: Any, *, dtype: Dtype = None, device: str | None = None) -> Callable[[], Tensor]:
    """`tensor` of a NumPy array, copied beside the device's other work; the function that comes back gives the tensor.

    May be called from any thread. What the device is given after the tensor was taken runs behind the copy. The array
    may be changed once this returns.
    """
    take = ahead(_backend(device), data, dtype)
    return lambda: Tensor(take())


def asarray(obj: Any, /, *, dtype: Dtype = None, device: str | None = None, copy: bool | None = None) -> Tensor:
    """`obj` as a tensor: itself if it is one of that dtype and device and `copy` is not True, else a copy."""
    if not isinstance(obj, Tensor):
        if copy is False:
            raise AttributeValueError("asarray: copy=False, but only a tensor is taken without copying")
        return tensor(obj, dtype=dtype, device=device)
    made = obj.to(dtype=None if dtype is None else dtype_of(dtype), device=device)
    if copy is False and made is not obj:
        raise AttributeValueError("asarray: copy=False, but another dtype or device needs a copy")
    return obj.clone() if copy and made is obj else made


def _shape(size: tuple[Size, ...]) -> Shape:
    shape = sizes(size)
    if min(shape, default=0) < 0:
        raise AttributeValueError(f"shape {shape} has a negative size")
    return shape


def _full(shape: Shape, value: Any, dtype: DType, device: str | None, requires_grad: bool) -> Tensor:
    out = _backend(device).allocate(Layout.of(dtype, shape))
    return _leaf(launch("fill", alpha=value, out=out), requires_grad)


def _zeros(shape: Shape, dtype: DType, device: str | None, requires_grad: bool) -> Tensor:
    if node.stage is not None and (raw := node.stage.zeros(_backend(device), Layout.of(dtype, shape))) is not None:
        return _leaf(raw, requires_grad)
    return _full(shape, 0, dtype, device, requires_grad)


def zeros(*size: Size, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Zeros."""
    return _zeros(_shape(size), dtype_of(dtype or float32), device, requires_grad)


def ones(*size: Size, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Ones."""
    return _full(_shape(size), 1, dtype_of(dtype or float32), device, requires_grad)


def full(
    size: Size, fill_value: float, *, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """One number everywhere; the dtype follows from it unless given."""
    return _full(_shape((size,)), fill_value, dtype_of(dtype or type(fill_value)), device, requires_grad)


def empty(*size: Size, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Memory as it is found."""
    return _leaf(_backend(device).allocate(Layout.of(dtype_of(dtype or float32), _shape(size))), requires_grad)


def _like(x: Tensor, value: Any, dtype: Dtype, device: str | None, requires_grad: bool) -> Tensor:
    return _full(x.shape, value, dtype_of(dtype or x.dtype), device or x.device, requires_grad)


def zeros_like(x: Tensor, /, *, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Zeros of x's shape, dtype and device."""
    return _zeros(x.shape, dtype_of(dtype or x.dtype), device or x.device, requires_grad)


def ones_like(x: Tensor, /, *, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Ones of x's shape, dtype and device."""
    return _like(x, 1, dtype, device, requires_grad)


def full_like(
    x: Tensor, /, fill_value: float, *, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """One number everywhere, in x's shape, dtype and device."""
    return _like(x, fill_value, dtype, device, requires_grad)


def empty_like(x: Tensor, /, *, dtype: Dtype = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Memory as it is found, of x's shape, dtype and device."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device, requires_grad=requires_grad)


def _ruled(host: Any, dtype: Dtype, device: str | None, requires_grad: bool) -> Tensor:
    wanted = dtype_of(dtype) if dtype is not None else float32 if host.dtype.kind == "f" else int64
    require_fits("creation", host, wanted)
    return _leaf(upload(_backend(device), host, wanted), requires_grad)


def _require_countable(op: str, count: float) -> None:
    """OutOfMemoryError for counts at which NumPy says, each time otherwise, that there is no such size."""
    if count >= 2**60:
        raise OutOfMemoryError(f"{op}: {count:.3g} elements are more than any memory holds; make it smaller")


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Dtype = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... before stop; `arange(n)` is 0 to n - 1. int64 if all three are ints."""
    if step == 0:
        raise AttributeValueError("arange: step must not be 0")
    first, last = (0, start) if stop is None else (start, stop)
    if not all(map(isfinite, (first, last, step))):
        raise AttributeValueError(f"arange: start={first}, stop={last} and step={step} must be finite")
    _require_countable("arange", abs(last - first) / abs(step))
    return _ruled(np.arange(first, last, step), dtype, device, requires_grad)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Dtype = None,
    device: str | None = None,
    endpoint: bool = True,
    requires_grad: bool = False,
) -> Tensor:
    """`num` numbers from start to stop at equal distances; without `endpoint`, stop is left out."""
    if (num := as_index(num)) < 0:
        raise AttributeValueError(f"linspace: num={num} must not be negative")
    if not (isfinite(start) and isfinite(stop)):
        raise AttributeValueError(f"linspace: start={start} and stop={stop} must be finite")
    _require_countable("linspace", num)
    return _ruled(np.linspace(start, stop, num, endpoint=endpoint), dtype, device, requires_grad)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Dtype = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones on the diagonal `k` places right of the main one, zeros elsewhere."""
    n_rows, n_cols = as_index(n_rows), as_index(n_rows if n_cols is None else n_cols)
    if min(n_rows, n_cols) < 0:
        raise AttributeValueError(f"eye: sizes {n_rows} and {n_cols} must not be negative")
    _require_countable("eye", n_rows * n_cols)
    return _ruled(np.eye(n_rows, n_cols, k), dtype, device, requires_grad)


def _random(
    kind: str,
    size: tuple[Size, ...],
    generator: Generator | None,
    dtype: Dtype,
    device: str | None,
    requires_grad: bool,
) -> Tensor:
    shape, wanted, backend = _shape(size), dtype_of(dtype or float32), _backend(device)
    key, counter = (generator or default_context().generator).reserve(words_for(kind, wanted.itemsize, prod(shape)))
    like = backend.allocate(Layout.of(wanted, ()))
    return _leaf(launch("random", like, kind=kind, shape=shape, dtype=wanted, key=key, counter=counter), requires_grad)


def rand(
    *size: Size,
    generator: Generator | None = None,
    dtype: Dtype = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1); the same on every device for one generator state."""
    return _random("uniform", size, generator, dtype, device, requires_grad)


def randn(
    *size: Size,
    generator: Generator | None = None,
    dtype: Dtype = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers of mean 0 and variance 1; the same on every device, up to rounding, for one generator state."""
    return _random("normal", size, generator, dtype, device, requires_grad)


def _words(generator: Generator | None, count: int) -> np.ndarray[Any, Any]:
    key, counter = (generator or default_context().generator).reserve(count)
    return draw("bits", 4, key, counter, count)


def randint(low: int, high: int | None = None, size: Size = (), *, generator: Generator | None = None, dtype: Dtype = None,
            device: str | None = None) -> Tensor:  # fmt: skip
    """Integers in [low, high), or in [0, low) if there is no high; drawn on the host, so alike on every device.

    Errors: AttributeValueError unless 0 < high - low <= 2**32
    """
    first, last = (0, as_index(low)) if high is None else (as_index(low), as_index(high))
    if not 0 < last - first <= 2**32:
        raise AttributeValueError(f"randint: [{first}, {last}) must hold between 1 and 2**32 integers")
    shape = _shape((size,))
    words = _words(generator, prod(shape)).astype(np.uint64)
    require_fits("randint", np.array([first, last - 1], object), dtype_of(dtype or int64))
    numbers = ((words * np.uint64(last - first)) >> np.uint64(32)).astype(np.int64) + first
    return _ruled(numbers.reshape(shape), dtype or int64, device, False)


def randperm(n: int, *, generator: Generator | None = None, dtype: Dtype = None, device: str | None = None) -> Tensor:
    """The integers below n in a random order; drawn on the host, so alike on every device."""
    n = as_index(n)
    if n < 0:
        raise AttributeValueError(f"randperm: n={n} must not be negative")
    words = _words(generator, 2 * n).astype(np.uint64)
    return _ruled(np.argsort(words[:n] << np.uint64(32) | words[n:], kind="stable"), dtype or int64, device, False)


explain(globals())
