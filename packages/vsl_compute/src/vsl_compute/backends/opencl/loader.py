"""Importing pyopencl so that every driver of the machine is seen.

The loader finds drivers by ICD files, each naming a library. Containers with NVIDIA's driver often have the library
and no file. Before the loader first looks, a private directory is then made that holds a file for NVIDIA's library and
one for each driver that would have been found, and OCL_ICD_VENDORS names it. A value set by the user is left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import UnavailableError

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
    except ModuleNotFoundError as error:
        if error.name != "pyopencl":
            raise
        raise UnavailableError(
            "opencl: the package pyopencl is not installed; run: python -m pip install 'vsl-compute[opencl]'"
        ) from error
    except ImportError as error:  # its own library, or the loader's, cannot be loaded
        raise UnavailableError(
            f"opencl: pyopencl cannot be loaded ({error}); reinstall it: python -m pip install --force-reinstall pyopencl"
        ) from error


def loaded() -> None:
    """Take back what was added, once the loader has looked: children of this process look for themselves."""
    if _added is not None and os.environ.get("OCL_ICD_VENDORS") == str(_added):
        del os.environ["OCL_ICD_VENDORS"]
        shutil.rmtree(_added, ignore_errors=True)


def searched() -> str:
    """Where the loader looked, for messages."""
    chosen = [f"{name}={os.environ[name]}" for name in SET_BY_USER if os.environ.get(name)]
    if _added is not None:
        return f"{VENDORS}, pyopencl's own drivers and {NVIDIA}"
    return ", ".join(chosen) or f"{VENDORS} and pyopencl's own drivers"


def vendor_files() -> list[Path]:
    """The ICD files that the loader reads by default: the system's, and those beside the loader in pyopencl's wheel."""
    found = sorted(VENDORS.glob("*.icd")) if VENDORS.is_dir() else []
    spec = find_spec("pyopencl")
    for place in spec.submodule_search_locations or [] if spec is not None else []:
        found += sorted(Path(place).glob(".libs/*.icd"))
    return found


def _loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _add_nvidia() -> None:
    """Make NVIDIA's library known where it is installed and no file names it."""
    global _added
    if _added is not None or not sys.platform.startswith("linux") or any(os.environ.get(name) for name in SET_BY_USER):
        return
    files = vendor_files()
    named = [file.read_text(encoding="utf-8", errors="replace").strip() for file in files]
    if any("nvidia" in text for text in named) or not _loadable(NVIDIA):
        return
    _added = Path(tempfile.mkdtemp(prefix="vsl-opencl-"))
    for number, (file, text) in enumerate(zip(files, named, strict=True)):
        beside = file.parent / text  # a wheel's file names a library relative to itself
        library = str(beside) if beside.is_file() else text
        (_added / f"{number:02}-{file.name}").write_text(library + "\n", encoding="utf-8")
    (_added / "nvidia.icd").write_text(NVIDIA + "\n", encoding="utf-8")
    os.environ["OCL_ICD_VENDORS"] = str(_added)
