"""Context: the device that new tensors go to, and the generator that random ones come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vsl_compute import registry
from vsl_compute.backend import ComputeBackend
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import DType
from vsl_compute.errors import UnsupportedError
from vsl_compute.random import Generator

from . import node

if TYPE_CHECKING:
    from ..tensor import Tensor


class Context:
    """A device and a generator. One default Context a process serves what is made without saying where.

    Errors: UnavailableError if the device cannot be opened; UnsupportedError for a placement, which a later release has
    """

    def __init__(self, device: str = "cpu", placement: None = None, *, seed: int = 0) -> None:
        if placement is not None:
            raise UnsupportedError("Context: placement is not in this release; leave it out")
        self.backend: ComputeBackend = registry.get(device)
        self.placement = placement
        self.generator = Generator(seed)

    @property
    def device(self) -> str:
        """Spec of the device, such as "cpu:0"."""
        return self.backend.spec

    def variable(self, array: Any, dtype: DType | str | None = None, *, requires_grad: bool = True) -> Tensor:
        """A leaf on this device with a copy of `array`."""
        return node.wrap(asarray(self.backend, array, dtype)).requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Context(device='{self.device}')"


_default: list[Context] = []


def default_context() -> Context:
    """The Context of this process, made on first use."""
    if not _default:
        _default.append(Context())
    return _default[0]


def manual_seed(seed: int) -> Generator:
    """Start the default generator over from `seed`; initialization, dropout and random tensors draw from it unless given another."""
    return default_context().generator.manual_seed(seed)
