"""Placement: at which device each stage of training runs, as one object; and what the environment says about it.

The only file of this package that reads environment variables.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields

from vsl_compute import registry
from vsl_compute.errors import AttributeValueError, DeviceError

from .arguments import explain

STAGES = ("forward", "backward", "optimizer")
_SWITCHES = ("cuda", "vulkan", "opencl")


def _on(name: str) -> bool:
    """1 is on, anything else off."""
    return os.environ.get(name) == "1"


@dataclass(frozen=True)
class Placement:
    """A device spec for each stage; "cpu" is the host.

    parameters   where they live, and everything else that is made without a device. On a device all stages run there,
                 and nothing is staged. The stages below are for parameters on the host:
    forward      where ops of layers run (`vtl.apply`, and matrix products)
    activations  where their results stay: on the device they come down when the host reads them, else at once
    backward     where gradients are computed
    optimizer    where `vtl.update` steps; its slots stay there, the parameters come down once a step
    gradients    where gradients of activations stay, by default where backward is

    `asked_by` says who wants it, for messages; unless `strict`, a device that cannot be opened then means the CPU, with
    one warning when the session opens.

    Errors: AttributeValueError for two devices, for results that are to stay where nothing computes them, and for
            parameters on a device with a stage elsewhere; DeviceError for what is no device spec
    """

    parameters: str = "cpu"
    forward: str = "cpu"
    activations: str = "cpu"
    backward: str = "cpu"
    optimizer: str = "cpu"
    gradients: str = ""
    asked_by: str = field(default="", compare=False, kw_only=True)
    strict: bool = field(default=True, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.gradients:
            object.__setattr__(self, "gradients", self.backward)
        for name in ("parameters", "forward", "activations", "backward", "optimizer", "gradients"):
            spec = getattr(self, name)
            if not isinstance(spec, str):
                raise DeviceError(f"Placement: {name}={spec!r} must be a device spec such as 'cpu' or 'vulkan:0'")
            if spec != "auto":
                try:
                    object.__setattr__(self, name, registry.normalize(spec))
                except DeviceError:
                    if self.strict:
                        raise
        self._check()

    def _check(self) -> None:
        places = [self.forward, self.activations, self.backward, self.optimizer, self.gradients]
        if self.parameters != HOST:
            if any(place != self.parameters for place in places):
                raise AttributeValueError(
                    f"Placement: parameters={self.parameters!r}, but a stage is elsewhere ({self}); "
                    "where parameters are on a device, everything is there"
                )
            return
        if len(devices := set(places) - {HOST}) > 1:
            raise AttributeValueError(
                f"Placement: stages on {' and '.join(sorted(devices))}; use one device, and 'cpu'"
            )
        for kept, stage in (("activations", "forward"), ("gradients", "backward")):
            if getattr(self, kept) != HOST and getattr(self, stage) == HOST:
                raise AttributeValueError(
                    f"Placement: {kept}={getattr(self, kept)!r}, but {stage}='cpu' makes them; set {stage} too"
                )

    @property
    def staged_device(self) -> str | None:
        """The device that stages run on while the parameters stay on the host; None if there is none."""
        found = {getattr(self, stage) for stage in STAGES} - {HOST}
        return found.pop() if found and self.parameters == HOST else None

    def __str__(self) -> str:
        return ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.compare)

    @staticmethod
    def from_environment() -> Placement:
        """What the environment asks for; 1 is on, anything else off.

        VTL_BACKEND=SPEC           everything on that device; the rest is then not looked at
        VTL_USE_CUDA=1             forward on cuda
        VTL_GPU_ACTIVATIONS=1      with it, results stay there
        VTL_CUDA_BACKWARD=1        with it, gradients are computed there
        VTL_CUDA_OPTIMIZER=1       with it, optimizers step there
        VTL_USE_VULKAN=1, VTL_USE_OPENCL=1   forward, backward and optimizer on that device, no result stays
        VTL_BACKEND_STRICT=1       a device that cannot be opened is an UnavailableError, not a warning and the CPU

        Errors: AttributeValueError if two of VTL_USE_CUDA, VTL_USE_VULKAN and VTL_USE_OPENCL are 1
        """
        strict = _on("VTL_BACKEND_STRICT")
        wanted = [name for name in _SWITCHES if _on(f"VTL_USE_{name.upper()}")]
        if len(wanted) > 1:
            given = " and ".join(f"VTL_USE_{name.upper()}=1" for name in wanted)
            raise AttributeValueError(f"Placement: {given}: at most one of them may be 1; unset the others")
        if everything := os.environ.get("VTL_BACKEND"):
            return Placement(*(everything,) * 6, asked_by=f"VTL_BACKEND={everything}", strict=strict)
        if not wanted:
            return Placement(strict=strict)
        name = wanted[0]
        by = f"VTL_USE_{name.upper()}=1"
        if name != "cuda":
            return Placement("cpu", name, "cpu", name, name, "cpu", asked_by=by, strict=strict)
        kept, backward, optimizer = (
            name if _on(f"VTL_{switch}") else "cpu" for switch in ("GPU_ACTIVATIONS", "CUDA_BACKWARD", "CUDA_OPTIMIZER")
        )
        return Placement("cpu", name, kept, backward, optimizer, asked_by=by, strict=strict)


HOST = "cpu:0"


explain(globals())
