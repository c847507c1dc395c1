"""Tensors with automatic differentiation on any device that vsl-compute reaches."""

from vtl_core import _compat  # noqa: F401 - first: it refuses what does not fit
from vtl_core._version import __version__
from vtl_core.tensor import Tensor

from vsl_compute.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from vsl_compute.errors import (
    AttributeValueError,
    DeviceError,
    DeviceLostError,
    DeviceTimeoutError,
    DTypeError,
    GraphError,
    IndexRangeError,
    InterfaceError,
    KernelCompileError,
    OutOfMemoryError,
    ReleasedError,
    RowError,
    ShapeError,
    UnavailableError,
    UnsupportedError,
    VersionError,
    VslError,
)
from vsl_compute.random import Generator

from .autograd.backward import grad
from .autograd.check import check_gradients
from .autograd.checkpointing import checkpoint
from .autograd.context import Context, default_context, manual_seed
from .autograd.node import enable_grad, is_grad_enabled, no_grad
from .creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    rand,
    randint,
    randn,
    randperm,
    tensor,
    zeros,
    zeros_like,
)
from .interchange import from_dlpack
from .namespace import *  # noqa: F403  # its __all__ is the list
from .namespace import __all__ as _functions
