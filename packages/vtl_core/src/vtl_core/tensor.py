"""Tensor: an array on a device that remembers how it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from vsl_compute import registry
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import DType, dtype_of
from vsl_compute.errors import DTypeError, GraphError, ShapeError
from vsl_compute.view import Shape

from . import indexing, interchange
from .autograd import backward as walking
from .autograd import gates, node, shape_gates
from .methods.casts import Casts
from .printing import text

if TYPE_CHECKING:
    from .hooks import RemovableHandle

Array = np.ndarray[Any, Any]


class Tensor(Casts):
    """An array of one dtype on one device, and the node that made it.

    Methods have PyTorch's names, arguments and defaults; functions of the package have the array API's. Make one with
    `vtl.tensor`, `vtl.zeros` and their like, or `context.variable`.
    """

    __slots__ = ()

    # what it is
    @property
    def device(self) -> str:
        """Spec of the device it is on, such as "cpu:0"."""
        return self.raw.buffer.backend.spec

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.raw.layout.size

    @property
    def strides(self) -> Shape:
        """Elements from one index to the next, an entry an axis."""
        return self.raw.layout.strides

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.raw.layout.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.raw.layout.dtype.itemsize

    def numel(self) -> int:
        """Number of elements."""
        return self.raw.layout.size

    def dim(self) -> int:
        """Number of axes."""
        return self.ndim

    # gradients
    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        return self.tracked

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of this leaf, or stop asking; DTypeError unless it is floating."""
        if requires_grad and not self.dtype.is_floating:
            raise DTypeError(f"requires_grad_: only floating tensors have gradients, this one is {self.dtype.name}")
        if not requires_grad and self.node is not None:
            raise GraphError(
                "requires_grad_: this tensor was made from others that require gradients; detach() it instead"
            )
        self.tracked = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was made by its user, not by an op that gradients flow through."""
        return self.node is None

    def retain_grad(self) -> None:
        """Keep the gradient that arrives here in `.grad`, though the tensor is no leaf."""
        if not self.tracked:
            raise GraphError("retain_grad: no gradient flows through this tensor")
        if self.node is not None:
            self.node.watched = [*(self.node.watched or ()), (self.output, ref(self))]

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook` with the gradient of this tensor each time that one arrives; what it returns goes on in its place.

        Several are called in order, each with what the one before gave. It is given a copy of its own, so that a change in
        place goes on too, and what it keeps stays as it was. The handle's remove() takes it off.

        Errors: GraphError if no gradient flows here; in the backward pass ShapeError, DTypeError or DeviceError for a tensor
                that is not like the gradient
        """
        from .hooks import register

        return register(self, hook)

    def backward(self, gradient: Tensor | None = None, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Add d self / d leaf to `.grad` of every leaf that requires gradients, weighted with `gradient`.

        Shapes: gradient as self; not needed for a tensor of one element
        Errors: GraphError if the graph was used before without retain_graph=True, or no gradient flows here;
                VersionError if something it needs was changed in place
        Cost:   about that of two forward passes; saved values are let go on the way unless the graph is retained
        """
        walking.backward([self], [gradient], retain_graph=retain_graph, create_graph=create_graph)

    # elsewhere, otherwise
    def to(
        self, target: str | DType | Tensor | None = None, dtype: DType | None = None, *, device: str | None = None
    ) -> Tensor:
        """The tensor on another device, in another dtype, or both, as another tensor is; itself if it is so already.

        Errors: UnavailableError with reason and remedy if the device cannot be opened
        """
        if isinstance(target, Tensor):
            device, dtype = target.device, target.dtype
        elif isinstance(target, str):
            device = target
        elif target is not None:
            dtype = dtype_of(target)
        moved: Tensor = self
        if dtype is not None and dtype is not self.dtype:
            moved = gates.run("astype", moved, dtype=dtype)
        if device is not None and (spec := registry.normalize(device)) != self.device:
            moved = shape_gates.move(moved, spec)
        return moved

    def to_device(self, device: str) -> Tensor:
        """The tensor on another device; itself if it is there already."""
        return self.to(device)

    def to_host(self) -> Array:
        """A NumPy array of one's own: a copy, whatever the device; bfloat16 comes as float32."""
        return self.raw.to_host()

    def cpu(self) -> Tensor:
        """The tensor on the CPU."""
        return self.to("cpu:0")

    def numpy(self) -> Array:
        """A read-only NumPy array: of the tensor's own memory on the CPU, a copy elsewhere; bfloat16 comes as float32.

        Gradients do not flow through what NumPy does with it.
        """
        return interchange.to_numpy(self.raw)

    def item(self) -> Any:
        """The one element as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item: the tensor is {self.shape} and has {self.size} elements; item() is for one")
        return self.numpy().item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers; a number for a tensor without axes."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return interchange.to_array(self.raw, dtype, copy)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None,
                   copy: bool | None = None) -> Any:  # fmt: skip
        return interchange.to_dlpack(self.raw, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return interchange.dlpack_device(self.raw)

    # as Python sees it
    def __getitem__(self, index: Any) -> Tensor:
        return indexing.select(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        indexing.assign(self, index, value)

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("len: a tensor without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise DTypeError("iter: a tensor without axes cannot be iterated; use item()")
        return (self.slice(i) for i in range(self.shape[0]))

    def _only(self, what: str) -> Any:
        if self.size != 1:
            raise ShapeError(
                f"{what}: the tensor is {self.shape}; only one of one element is a {what}"
                + ", use any() or all()" * (what == "bool")
            )
        return self.item()

    def __bool__(self) -> bool:
        return bool(self._only("bool"))

    def __float__(self) -> float:
        return float(self._only("float"))

    def __int__(self) -> int:
        return int(self._only("int"))

    def __index__(self) -> int:
        if not self.dtype.is_integer or self.ndim:
            raise DTypeError(
                f"index: a {self.dtype.name}{list(self.shape)} is no index; an integer tensor without axes is"
            )
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __repr__(self) -> str:
        return text(self)

    if not TYPE_CHECKING:  # a checker would take any name for granted

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or hasattr(type(self), name):  # one that is there and failed says so itself
                return object.__getattribute__(self, name)
            from .elsewhere import METHODS, missing

            raise AttributeError(missing(f"{type(self).__name__!r} object", name, METHODS), name=name, obj=self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if self.node is not None:
            raise GraphError(
                "deepcopy: only leaves can be copied deeply, this tensor was made by an op; detach() it first"
            )
        if id(self) not in memo:
            with node.no_grad():
                memo[id(self)] = copied = Tensor(self.clone().raw, self.tracked)
                if self.grad is not None:
                    copied.grad = self.grad.detach().clone()
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.node is not None:
            raise GraphError("pickle: only leaves can be pickled, this tensor was made by an op; detach() it first")
        return _restored, (self.to_host(), self.dtype.name, self.device, self.tracked)


def _restored(host: Array, dtype: str, device: str, tracked: bool) -> Tensor:
    """Unpickle: a host copy goes back to the device it came from."""
    return Tensor(asarray(registry.get(device), host, dtype), tracked)


for _part in Tensor.__mro__[1:-1]:  # so that Python's own complaints say "Tensor.mean()", not the name of a part
    for _name, _method in vars(_part).items():
        if isinstance(_method, FunctionType):
            _method.__qualname__ = f"Tensor.{_name}"

node.wrap = Tensor
