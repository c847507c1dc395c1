"""Every error that vsl-compute raises on purpose; each also inherits the builtin a caller would expect.

VslError
  UnavailableError(RuntimeError)        the backend cannot be opened here: why, and what would help
  UnsupportedError(NotImplementedError) this backend, this op, this dtype
  ShapeError(ValueError)                what was given, what was wanted, which argument
  DTypeError(TypeError)                 likewise for dtypes
  DeviceError(ValueError)               arguments live on different devices, or the device name is wrong
  AttributeValueError(ValueError)       an op's option is outside its range
    ArgumentTypeError(TypeError)        an argument is of a type that the function does not take
  IndexRangeError(IndexError)           an index read on the device points outside the axis
  OutOfMemoryError(MemoryError)         asked, held, largest free
  KernelCompileError(RuntimeError)      the text with line numbers, and the compiler's log
  ReleasedError(RuntimeError)           a view of a released buffer
  VersionError(RuntimeError)            a value saved for the backward pass was changed afterwards
  GraphError(RuntimeError)              a program was used in a way its recording does not allow
  DeviceLostError(RuntimeError)         the device stopped answering
  DeviceTimeoutError(TimeoutError)      the device did not finish in the time allowed
  InterfaceError(ImportError)           two installed packages speak different interface versions
  RowError(ValueError)                  a row of the op table says something the grammar does not have
"""

from __future__ import annotations

import re

_BREAK = re.compile(r"\s*\n\s*")


class VslError(Exception):
    """Base of every error that this project raises on purpose; what it says is one line, whatever values it names."""

    def __str__(self) -> str:
        return _BREAK.sub(" ", super().__str__())


class UnavailableError(VslError, RuntimeError):
    """A backend or device cannot be opened on this machine."""


class UnsupportedError(VslError, NotImplementedError):
    """A backend declares that it has no such op for this dtype."""


class ShapeError(VslError, ValueError):
    """Shapes that do not fit the op's rule."""


class DTypeError(VslError, TypeError):
    """Dtypes that do not fit the op's rule."""


class DeviceError(VslError, ValueError):
    """Arguments on different devices, or a device name that means nothing."""


class AttributeValueError(VslError, ValueError):
    """An option of an op that is outside its range."""


class ArgumentTypeError(AttributeValueError, TypeError):
    """An argument of a type that the function does not take."""


class IndexRangeError(VslError, IndexError):
    """An index that points outside its axis, found where the data lives."""


class OutOfMemoryError(VslError, MemoryError):
    """The device has no room for what was asked."""


class KernelCompileError(VslError, RuntimeError):
    """A kernel text that the device's compiler refused, and what it said: the one error of several lines."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class ReleasedError(VslError, RuntimeError):
    """A view of a buffer that was released."""


class VersionError(VslError, RuntimeError):
    """A value that the backward pass needs was changed after it was saved."""


class GraphError(VslError, RuntimeError):
    """A recorded program that cannot be used this way."""


class DeviceLostError(VslError, RuntimeError):
    """The device stopped answering."""


class DeviceTimeoutError(VslError, TimeoutError):
    """The device did not finish in the time allowed."""


class InterfaceError(VslError, ImportError):
    """Two installed packages speak different versions of an interface."""


class RowError(VslError, ValueError):
    """A row of the op table that the grammar cannot say; raised at import."""
