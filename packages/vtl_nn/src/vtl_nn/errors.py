"""What vtl-nn raises beyond vtl-core's errors; each also inherits the builtin a caller would expect.

VslError
  FileFormatError(ValueError)   a weights file or checkpoint that is truncated, tampered with or of another format
  StateError(RuntimeError)      a state that does not fit the model or optimizer: every name that is missing or different
  TrainingError(RuntimeError)   training that cannot start or go on: an empty data set, a loss that is not a number
"""

from __future__ import annotations

from vtl_core import VslError


class FileFormatError(VslError, ValueError):
    """A file that is not what its format says; nothing of it was used."""


class StateError(VslError, RuntimeError):
    """Saved values that do not fit; nothing was changed."""


class TrainingError(VslError, RuntimeError):
    """Training that cannot start or go on."""
