"""What a backend declares that it lacks, derived from its capabilities, and the lists of it that are kept, one a driver.

A list that differs from what the driver declares today fails the suite: support does not go, or come, unnoticed.
"""

from __future__ import annotations

from pathlib import Path

from ...backend import ComputeBackend
from ...dtypes import ALL, DType
from ...ops.table import ENTRIES, Entry
from ...rows.row import Reduction, Row
from ...rows.signature import LETTERS

FOLDER = Path(__file__).parent
# backend, what the name of its device or driver begins with, file
DRIVERS = (
    ("cpu", "", "cpu"),
    ("vulkan", "llvmpipe", "vulkan-llvmpipe"),
    ("vulkan", "NVIDIA", "vulkan-nvidia"),
    ("cuda", "", "cuda"),
    ("opencl", "Portable Computing Language", "opencl-pocl"),
    ("opencl", "NVIDIA", "opencl-nvidia"),
)


def declared(backend: ComputeBackend) -> list[str]:
    """Every op of the table with each dtype that its signature admits and the backend lacks: "exp float64"."""
    return sorted(
        f"{entry.name} {dtype.name}"
        for entry in ENTRIES
        for dtype in ALL
        if _admits(entry, dtype) and not _supports(backend, entry, dtype)
    )


def _admits(entry: Entry, dtype: DType) -> bool:
    """Whether the dtype may stand for the letter that decides what is computed."""
    letters = entry.signature.inputs or entry.signature.outputs
    kinds = LETTERS[next((letter for letter in letters if letter in "nfa"), letters[0])]
    return dtype.kind in kinds


def _supports(backend: ComputeBackend, entry: Entry, dtype: DType) -> bool:
    if isinstance(entry, Row):
        return backend.supports_row(entry, dtype)
    primitive = "reduce" if isinstance(entry, Reduction) else entry.primitive or "elementwise"
    return backend.supports_primitive(primitive, dtype)


def kept(backend: ComputeBackend) -> tuple[Path, list[str]] | None:
    """The list of this driver and its lines; None if none is kept."""
    info = backend.info
    for name, start, file in DRIVERS:
        if backend.name == name and (info.name.startswith(start) or info.driver.startswith(start)):
            path = FOLDER / f"{file}.txt"
            return path, [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return None
