"""autocast: run what multiplies in a narrow dtype, what sums or exponentiates in float32, by one table of ops.

Only float32 and narrower arguments are cast; float64 stays. Ops of neither list take what they are given: the
normalizations keep their statistics and parameters in float32 whatever their input is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from vsl_compute.dtypes import DType, bfloat16, dtype_of, float16, float32
from vsl_compute.errors import DTypeError

from ..arguments import explain
from .node import Traced, Values, mode

P = ParamSpec("P")
R = TypeVar("R")

NARROW = frozenset(
    {
        "attention", "attention_weights", "conv2d", "conv2d_input", "conv2d_relu", "conv2d_relu_max_pool2d",
        "conv2d_weight", "feed_forward", "gru", "linear", "linear_relu",
        "linear_relu_input", "linear_weight", "lstm", "matmul", "rnn_relu", "rnn_tanh",
    }
)  # fmt: skip
WIDE = frozenset(
    {
        "acos", "asin", "cosh", "cumsum", "erf", "exp", "expm1", "log", "log10", "log1p", "log2", "log_softmax", "logsumexp", "norm",
        "power", "prod", "reciprocal", "rsqrt", "sinh", "softmax", "softplus", "sum", "tan",
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy", "hinge_embedding_loss",
        "hinge_loss", "huber_loss", "kl_div", "kl_div_log", "l1_loss", "mse_loss", "nll_loss", "sigmoid_focal_loss", "smooth_l1_loss",
        "soft_cross_entropy", "soft_margin_loss",
    }
)  # fmt: skip


def casts(op: Any, args: Values, narrow: DType) -> Values:
    """The arguments as autocast to `narrow` gives them to this op."""
    target = narrow if op.name in NARROW else float32 if op.name in WIDE else None
    if target is None:
        return args
    return [
        a.to(target) if isinstance(a, Traced) and a.dtype.is_floating and a.dtype.itemsize <= 4 else a  # type: ignore[attr-defined]  # every Traced is a Tensor
        for a in args
    ]


class autocast(AbstractContextManager[None]):
    """In this thread run products in `dtype` and losses in float32; PyTorch's name, a context manager and a decorator.

    `with vtl.autocast(vtl.float16):` around the forward pass and the loss; backward runs outside, in the dtypes that the
    forward pass had. Parameters stay float32 and receive float32 gradients. float16 wants a GradScaler besides.

    Dtypes:  bfloat16 or float16; float64 is left alone
    """

    def __init__(self, dtype: DType | str = bfloat16, enabled: bool = True) -> None:
        try:
            wanted = dtype_of(dtype)
        except DTypeError as error:  # PyTorch's first argument is a device
            raise DTypeError(
                f"autocast: {error}; PyTorch's device_type is not given here, tensors stay where they are: autocast(vtl.bfloat16)"
            ) from error
        if wanted not in (bfloat16, float16):
            raise DTypeError(f"autocast: dtype {wanted.name} is not one to cast to; use bfloat16 or float16")
        self.dtype, self.enabled = wanted, enabled
        self._before: list[DType | None] = []

    def __enter__(self) -> None:
        self._before.append(mode.narrow)
        mode.narrow = self.dtype if self.enabled else None

    def __exit__(self, *exception: object) -> None:
        mode.narrow = self._before.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Run `function` so each time it is called."""

        @wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with type(self)(self.dtype, self.enabled):
                return function(*args, **kwargs)

        return inside


def autocast_dtype() -> DType | None:
    """What products run in, in this thread; None where nothing is cast."""
    return mode.narrow


explain(globals(), whole=True)
