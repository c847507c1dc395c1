"""Locks that are free in a child made by fork, whoever held them in its parent.

A fork copies a lock as it is and leaves the threads behind: one that another thread held would never be given back, and a
data worker that only wants the CPU would wait for ever. What such a lock guards may be half done in the child; devices
refuse to be used there, and what the registry and the tuner hold is changed in single steps.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_made: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> threading.Lock:
    """A lock of one owner at a time."""
    made = threading.Lock()
    _made.add(made)
    return made


def reentrant() -> Any:
    """A lock that its owner may take again; a threading.RLock, which is no type that can be named."""
    made = threading.RLock()
    _made.add(made)
    return made


def _free() -> None:
    for made in list(_made):
        made._at_fork_reinit()  # what the standard library does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
