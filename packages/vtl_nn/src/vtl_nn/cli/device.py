"""Where a command runs: --device, else what the environment says, else the fastest device that can be opened."""

from __future__ import annotations

import vtl_core as vtl


def choose(asked: str | None) -> vtl.Context:
    """Return the context in which the command runs; its session is yet to be attached.

    What --device names must open, and everything is there. What VTL_BACKEND or VTL_USE_* name falls back to the CPU
    with a warning, unless VTL_BACKEND_STRICT=1.

    Errors:  UnavailableError with reason and remedy; DeviceError for a name that means nothing
    """
    if asked is not None:
        return vtl.Context(asked)
    placement = vtl.Placement.from_environment()
    return vtl.Context(placement=placement) if placement.asked_by else vtl.Context("auto")


def described(session: vtl.Session) -> str:
    """Where everything is, in a few words: "cuda:0", or "cpu:0 (forward, backward on cuda:0)"."""
    placement = session.placement
    device = placement.staged_device
    if device is None:
        return session.home
    stages = [stage for stage in ("forward", "backward", "optimizer") if getattr(placement, stage) == device]
    return f"{session.home} ({', '.join(stages)} on {device})"
