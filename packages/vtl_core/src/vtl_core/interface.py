"""The interface check, for the packages that stand on vtl-core and import nothing below it."""

from vsl_compute.interface import require
from vtl_core._interface import PROVIDES

__all__ = ["PROVIDES", "require"]
