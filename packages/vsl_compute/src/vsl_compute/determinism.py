"""Whether results must be the same bits from run to run: one setting of the process, read by the backends that have a choice."""

from __future__ import annotations

from .errors import DTypeError

_wanted = False


def use_deterministic_algorithms(mode: bool) -> None:
    """Allow only algorithms whose results are the same bits each time (True), or any (False, the default).

    Everything here is deterministic but some of cuDNN's convolution plans, which add gradients in the order that threads
    happen to finish in and may be the quickest; True leaves those out. What was chosen before stays chosen for its mode.

    Errors:  DTypeError for what is no bool
    """
    global _wanted
    if not isinstance(mode, bool):
        raise DTypeError(f"use_deterministic_algorithms: {mode!r:.40} is no bool; give True or False")
    _wanted = mode


def are_deterministic_algorithms_enabled() -> bool:
    """What was chosen."""
    return _wanted
