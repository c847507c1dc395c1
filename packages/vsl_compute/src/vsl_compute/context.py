"""ComputeContext: one device and the compute methods on it. vsl-compute alone is a compute library; this is its face."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from . import registry
from .backend import ComputeBackend, Memory, Scalar, Transfers
from .dispatch import asarray, run
from .dtypes import DType, dtype_of
from .errors import DeviceError, DTypeError, ShapeError, UnavailableError
from .ops.table import find
from .rows.row import Reduction, Row
from .rows.signature import LETTERS
from .view import View

# what the methods that are not called as their op is run
OPS = {
    "gemm": "matmul",
    "gemv": "matmul",
    "add_vec": "add",
    "mul_vec": "multiply",
    "add_scalar": "add",
    "mul_scalar": "multiply",
    "layernorm": "layer_norm",
}


class ComputeContext:
    """A device, opened: `context.asarray` puts arrays on it, the methods compute there, `to_host()` brings them back.

    `spec` is "auto" (the fastest device here that is not software, else the CPU) or name[:index]. With `strict`,
    "auto" refuses to end on the CPU; an explicit spec never falls back.

    Errors:  UnavailableError with reason and remedy; DeviceError for a name that means nothing
    """

    def __init__(self, spec: str = "auto", *, strict: bool = False) -> None:
        self.backend: ComputeBackend = registry.get(spec)
        self.strict = strict
        if spec == "auto" and self.backend.info.kind == "cpu":
            reasons = "; ".join(reason for reason in registry.backends().values() if reason)
            if strict:
                raise UnavailableError(
                    f"auto, strict: only the CPU can be opened here ({reasons}); run 'vsl doctor', or pass 'cpu'"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.backend.synchronize()

    def __repr__(self) -> str:
        return f"ComputeContext({self.backend.spec!r}, {self.backend.info.name})"

    def device_id(self) -> int:
        """Index of the device within its backend."""
        return self.backend.index

    def memory(self) -> Memory:
        """Bytes that Buffers hold now, and the most that were held from the device."""
        return self.backend.memory()

    def limit_memory(self, nbytes: int | None) -> None:
        """Hold at most so many bytes from the device, for the whole process; None is as many as it has.

        What is cached is given back before a request that would pass the limit is refused.

        Errors:  OutOfMemoryError at the request that would pass it; UnsupportedError where there is no pool to limit
        """
        self.backend.limit_memory(nbytes)

    def transfers(self) -> Transfers:
        """Bytes and calls each way since the backend was opened; all zero on the CPU."""
        return self.backend.transfers()

    def synchronize(self) -> None:
        """Wait for the device; raise what it found wrong."""
        self.backend.synchronize()

    def supports(self, op: str, dtype: str | DType) -> bool:
        """Whether this device computes `op` in `dtype`: derived from the op's signature and the device's functions.

        `op` is a name of the op table, or of a method here.
        """
        entry, wanted = find(OPS.get(op, op)), dtype_of(dtype)
        if isinstance(entry, Row):
            letters = entry.signature.inputs
            beside = "bi" if letters.strip("bi") else ""  # truth values and indices have dtypes of their own
            try:
                entry.signature.resolve(op, tuple(None if letter in beside else wanted for letter in letters))
            except DTypeError:
                return False
            return self.backend.supports_row(entry, wanted)
        if isinstance(entry, Reduction):
            return (wanted.kind != "b" or entry.booleans) and self.backend.supports_primitive("reduce", wanted)
        letter = next((letter for letter in entry.signature.inputs if letter != "i"), "n")
        fits = wanted.kind in LETTERS[letter]
        return fits and self.backend.supports_primitive(entry.primitive or "elementwise", wanted)

    def asarray(self, array: Any, dtype: str | DType | None = None) -> View:
        """Copy a NumPy array, nested lists (float32, int64) or a View to this device."""
        if isinstance(array, View):
            if array.buffer.backend is self.backend and dtype is None:
                return array
            array = array.to_host()
        return asarray(self.backend, array, dtype)

    # compute
    def run(self, op: str, /, *args: View | Scalar | None, **attributes: Any) -> Any:
        """Any op of the table by name; the methods below are the common ones.

        Errors:  DeviceError for a View of another device, besides what the op has
        """
        for argument in (*args, *attributes.values()):
            if isinstance(argument, View) and argument.buffer.backend is not self.backend:
                raise DeviceError(
                    f"{op}: an argument is on {argument.device}, this context on {self.backend.spec}; "
                    "copy it here with context.asarray"
                )
        return run(op, *args, **attributes)

    def gemm(self, a: View, b: View) -> View:
        """a @ b.  Shapes: a (..., M, K), b (..., K, N); result (..., M, N).  Errors: ShapeError, DTypeError."""
        return self.run("matmul", a, b)  # type: ignore[no-any-return]

    def gemv(self, a: View, x: View) -> View:
        """a @ x.  Shapes: a (M, K), x (K,); result (M,)."""
        if a.ndim != 2 or x.shape != a.shape[1:]:
            raise ShapeError(f"gemv: a is {a.shape} and x is {x.shape}; a must be (M, K) and x (K,)")
        product: View = self.run("matmul", a, x.reshape((-1, 1)))
        return product.reshape((-1,))

    def add_vec(self, a: View, b: View) -> View:
        """a + b, broadcast."""
        return self.run("add", a, b)  # type: ignore[no-any-return]

    def mul_vec(self, a: View, b: View) -> View:
        """a * b element by element, broadcast."""
        return self.run("multiply", a, b)  # type: ignore[no-any-return]

    def add_scalar(self, x: View, scalar: Scalar) -> View:
        """x + scalar, in x's dtype."""
        return self.run("add", x, scalar)  # type: ignore[no-any-return]

    def mul_scalar(self, x: View, scalar: Scalar) -> View:
        """x * scalar, in x's dtype."""
        return self.run("multiply", x, scalar)  # type: ignore[no-any-return]

    def relu(self, x: View) -> View:
        """max(x, 0); NaN stays NaN."""
        return self.run("relu", x)  # type: ignore[no-any-return]

    def sigmoid(self, x: View) -> View:
        """1 / (1 + exp(-x))."""
        return self.run("sigmoid", x)  # type: ignore[no-any-return]

    def tanh(self, x: View) -> View:
        """Hyperbolic tangent."""
        return self.run("tanh", x)  # type: ignore[no-any-return]

    def elu(self, x: View, alpha: float = 1.0) -> View:
        """x where positive, else alpha * (exp(x) - 1)."""
        return self.run("elu", x, alpha=alpha)  # type: ignore[no-any-return]

    def softmax(self, x: View, axis: int = -1) -> View:
        """exp(x - max) / sum along `axis`."""
        return self.run("softmax", x, axis=axis)  # type: ignore[no-any-return]

    def layernorm(self, x: View, gamma: View | None = None, beta: View | None = None, *, eps: float = 1e-5) -> View:
        """(x - mean) / sqrt(variance + eps) * gamma + beta over the axes that gamma has (the last one without it)."""
        shape = gamma.shape if gamma is not None else x.shape[-1:]
        y: View = self.run("layer_norm", x, gamma, beta, normalized_shape=shape, eps=eps)[0]
        return y

    def conv2d(self, x: View, w: View, bias: View | None = None, *, stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] = 0,
               dilation: int | tuple[int, int] = 1, groups: int = 1) -> View:  # fmt: skip
        """Cross-correlate x (N, C, H, W) with w (O, C / groups, P, Q); see ops.convolution.

        Shapes:  result (N, O, H', W'), H' = (H + 2 * padding - dilation * (P - 1) - 1) // stride + 1
        """
        return self.run("conv2d", x, w, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)  # type: ignore[no-any-return]
