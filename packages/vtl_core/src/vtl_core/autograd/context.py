"""Context: where new tensors go and stages of training run, and the generator that random numbers come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vsl_compute import registry
from vsl_compute.backend import ComputeBackend
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import DType
from vsl_compute.errors import AttributeValueError
from vsl_compute.random import Generator

from ..arguments import explain
from ..placement import Placement
from ..session import Session, open_or_fall_back
from . import node

if TYPE_CHECKING:
    from ..tensor import Tensor


class Context:
    """A device, a placement and a generator. One default Context a process serves what is made without saying where.

    With `device` everything is there and nothing is staged; with `placement` each stage is where that says, and new
    tensors are with the parameters; with neither the environment decides, `Placement.from_environment()`.

    Errors: UnavailableError if the device cannot be opened; AttributeValueError for a device beside a placement whose
            parameters are elsewhere
    """

    def __init__(self, device: str | None = None, placement: Placement | None = None, *, seed: int = 0) -> None:
        if placement is not None and not isinstance(placement, Placement):
            raise AttributeValueError(
                f"Context: placement is {placement!r:.40} of type {type(placement).__name__}; "
                "give vtl.Placement(forward=..., ...), or device= for one device"
            )
        if placement is None and device is None:
            placement = Placement.from_environment()
        if placement is None:
            self.backend: ComputeBackend = registry.get(device or "cpu")
            placement = Placement(*(self.backend.spec,) * 6)
        else:
            self.backend = open_or_fall_back(placement.parameters, placement)
            if device is not None and registry.normalize(device) != self.backend.spec:
                raise AttributeValueError(
                    f"Context: device={device!r} and a placement with parameters={placement.parameters!r}; give one of them"
                )
        self.placement = placement
        self.generator = Generator(seed)
        self._session: Session | None = None

    @property
    def device(self) -> str:
        """Spec of the device that tensors are made on, such as "cpu:0"."""
        return self.backend.spec

    @property
    def session(self) -> Session | None:
        """The session that is attached, if one is."""
        return None if self._session is None or self._session.closed else self._session

    def attach_session(self) -> Session:
        """Put this Context's placement into force in the process, until the session is closed: `with` does that.

        The one that is attached already, if it is open. A later session stands before an earlier one.

        Errors: UnavailableError if the placement's device cannot be opened; where it comes from the environment and
                VTL_BACKEND_STRICT is not 1, that is one warning, and everything runs on the CPU
        """
        if self.session is None:
            self._session = Session(self.placement, self.device)
        return self._session  # type: ignore[return-value]  # set above

    def variable(self, array: Any, dtype: DType | str | None = None, *, requires_grad: bool = True) -> Tensor:
        """A leaf on this device with a copy of `array`."""
        return node.wrap(asarray(self.backend, array, dtype)).requires_grad_(requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Context:
        return self  # a place, not a value: the copy of a model stays in it

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_session": None}  # of this process

    def __repr__(self) -> str:
        staged = self.placement.staged_device
        return (
            f"Context(device='{self.device}')" if staged is None else f"Context(placement=Placement({self.placement}))"
        )


class _Unopened:
    """Stands where a session would until an op runs; then the default Context's is opened, as the environment says."""

    def __getattr__(self, name: str) -> Any:
        node.stage = None  # what opening runs is the host's; and what is opened goes in its place
        try:
            session = default_context().attach_session()
        except BaseException:
            node.stage = _unopened
            raise
        return getattr(session, name)


_unopened: Any = _Unopened()
node.stage = _unopened
_default: list[Context] = []


def default_context() -> Context:
    """The Context of this process, made on first use."""
    if not _default:
        _default.append(Context())
    return _default[0]


def set_default_device(device: str) -> None:
    """Put what is made without saying where on `device` from now on; the default generator goes on as it is.

    Errors:  UnavailableError if the device cannot be opened; DeviceError for a name that means nothing
    """
    default_context().backend = registry.get(device)


def manual_seed(seed: int) -> Generator:
    """Start the default generator over from `seed`; initialization, dropout and random tensors draw from it unless given another."""
    return default_context().generator.manual_seed(seed)


explain(globals())
