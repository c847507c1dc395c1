"""The CPU backend, on NumPy: what every other backend is compared with."""

from .backend import CPUBackend, CPUDriver


def driver() -> CPUDriver:
    """The entry point of this backend."""
    return CPUDriver()


__all__ = ["CPUBackend", "CPUDriver", "driver"]
