"""Importing pyopencl so that every driver of the machine is seen.

The loader finds drivers by ICD files, each naming a library. Containers with NVIDIA's driver often have the library
and no file. Before the loader first looks, a private directory is then made that holds a file for NVIDIA's library and
one for each driver that would have been found, and OCL_ICD_VENDORS names it. A value set by the user is left alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import UnavailableError
from ..shared import libraries

NVIDIA = "libnvidia-opencl.so.1"
VENDORS = Path("/etc/OpenCL/vendors")
SET_BY_USER = (
    "OCL_ICD_VENDORS",
    "OPENCL_VENDOR_PATH",
)  # not OCL_ICD_FILENAMES: the loader of pyopencl's wheel ignores it
REMEDY = (
    "install a driver with OpenCL for your GPU; for the CPU run: python -m pip install 'vsl-compute[pocl]' "
    "(Debian: apt install pocl-opencl-icd); `clinfo -l` lists what the loader sees"
)

_added: Path | None = None


def pyopencl() -> Any:
    """The module pyopencl; UnavailableError says how to get it."""
    if "pyopencl" not in sys.modules:
        with contextlib.suppress(OSError):  # no room for a temporary file: NVIDIA's library then stays unseen
            _add_nvidia()
    try:
        return import_module("pyopencl")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "pyopencl":
            raise UnavailableError(
                "opencl: the package pyopencl is not installed; run: python -m pip install 'vsl-compute[opencl]'"
            ) from error
        raise UnavailableError(  # its own library, the loader's or a package that it stands on
            f"opencl: pyopencl cannot be loaded ({error}); reinstall it: python -m pip install --force-reinstall pyopencl"
        ) from error


def loaded() -> None:
    """Take back what was added, once the loader has looked: children of this process look for themselves."""
    if _added is not None and os.environ.get("OCL_ICD_VENDORS") == str(_added):
        del os.environ["OCL_ICD_VENDORS"]
        shutil.rmtree(_added, ignore_errors=True)


def searched() -> str:
    """Where the loader looked, for messages."""
    chosen = [f"{name}={value}" for name, value in _chosen().items()]
    if _added is not None:
        return f"{VENDORS}, pyopencl's own drivers and {NVIDIA}"
    return ", ".join(chosen) or f"{VENDORS} and pyopencl's own drivers"


def remedy() -> str:
    """What brings a driver, for messages: the user's variable hides those that are installed."""
    return f"unset {' and '.join(_chosen())}, or {REMEDY}" if _chosen() else REMEDY


def _chosen() -> dict[str, str]:
    """The variables by which the user chose drivers; what was added is none of them."""
    found = {name: os.environ.get(name, "") for name in SET_BY_USER}
    return {name: value for name, value in found.items() if value and value != str(_added)}


def vendor_files() -> list[Path]:
    """The ICD files that the loader reads: the system's or the user's, and those beside the loader in pyopencl's wheel."""
    place = Path(next(iter(_chosen().values()), VENDORS))
    found = libraries.files(place, "*.icd")
    spec = find_spec("pyopencl")
    for folder in spec.submodule_search_locations or [] if spec is not None else []:
        found += libraries.files(Path(folder) / ".libs", "*.icd")
    return found


def named_libraries() -> list[tuple[Path, str]]:
    """Each of these files, and the library that it names."""
    found = []
    for file in vendor_files():
        text = file.read_text(encoding="utf-8", errors="replace").strip()
        beside = file.parent / text  # a wheel's file names a library relative to itself
        found.append((file, str(beside) if text and "\0" not in text and beside.is_file() else text))
    return found


def broken_files() -> list[str]:
    """The files whose driver cannot be loaded: the loader passes over them."""
    try:
        return libraries.broken(named_libraries())
    except OSError as error:
        return [f"{error.filename}: {error.strerror}"]


def _add_nvidia() -> None:
    """Make NVIDIA's library known where it is installed and no file names it."""
    global _added
    if _added is not None or not sys.platform.startswith("linux") or _chosen():
        return
    named = named_libraries()
    if any("nvidia" in Path(library).name for _, library in named) or libraries.refusal(NVIDIA) is not None:
        return
    _added = Path(tempfile.mkdtemp(prefix="vsl-opencl-"))
    for number, (file, library) in enumerate(named):
        (_added / f"{number:02}-{file.name}").write_text(library + "\n", encoding="utf-8")
    (_added / "nvidia.icd").write_text(NVIDIA + "\n", encoding="utf-8")
    os.environ["OCL_ICD_VENDORS"] = str(_added)
