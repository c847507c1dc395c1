"""The kernels that ship compiled: in step with their manifest, all that is asked for is there, and spirv-val passes them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from importlib import resources

import pytest

from vsl_compute.backends.vulkan import pipeline
from vsl_compute.backends.vulkan.indexing import FLOATS, INDEX, WIDE
from vsl_compute.backends.vulkan.reduce_module import Pass, emit_reduction
from vsl_compute.dtypes import float64
from vsl_compute.errors import KernelCompileError
from vsl_compute.kernels.attention import FORWARD, KEYS, QUERIES
from vsl_compute.kernels.convolution import TAPS, WINDOWS
from vsl_compute.kernels.reduce import reduction_dtypes
from vsl_compute.rows.reductions import REDUCTIONS

FOLDER = resources.files(pipeline.__package__) / "spv"
LISTED = json.loads((FOLDER / "manifest.json").read_text())["modules"]


def validated(words: bytes) -> str:
    command = ("spirv-val", "--target-env", "vulkan1.2", "-")
    run = subprocess.run(command, input=words, capture_output=True, check=False)
    return "" if run.returncode == 0 else run.stderr.decode() + run.stdout.decode()


def test_modules_are_those_of_the_manifest():
    found = {path.name.removesuffix(".spv") for path in FOLDER.iterdir() if path.name.endswith(".spv")}
    assert found == set(LISTED)
    for name, entry in LISTED.items():
        assert hashlib.sha256((FOLDER / f"{name}.spv").read_bytes()).hexdigest() == entry["module"], name


def test_every_module_that_is_launched_ships():
    wanted = {f"gather_{w}_{i}" for w in WIDE.values() for i in INDEX.values()}
    wanted |= {f"scatter_add_{w}_{i}" for w in ("f32", "f64", "u32", "u64") for i in INDEX.values()}
    wanted |= {f"fold_{chosen}{n}" for chosen in ("", "chosen_") for n in (*FLOATS.values(), *WIDE.values())}
    wanted |= {f"sort_{w}" for w in WIDE.values()}
    wanted |= {f"{kernel}_{n}" for kernel in ("gemm", "gemv", "gemm_join") for n in (*FLOATS.values(), "u32", "u64")}
    wanted |= {"gemm_units_f16", "gemm_units_bf16"}
    wanted |= {"random_bits_u32"} | {f"random_{kind}_{n}" for kind in ("uniform", "normal") for n in ("f32", "f64")}
    wanted |= {f"convolution_{form}_{n}" for form in (WINDOWS, TAPS) for n in FLOATS.values()}
    wanted |= {f"attention_{form}_{n}" for form in (FORWARD, QUERIES, KEYS) for n in ("f32", "f16", "bf16")}
    assert wanted == set(LISTED)


def test_a_module_that_differs_from_its_manifest_is_refused(monkeypatch):
    pipeline.shipped_module.cache_clear()
    monkeypatch.setattr(pipeline.json, "loads", lambda text: {"modules": {"sort_u8": {"module": "0"}}})
    with pytest.raises(KernelCompileError, match=r"sort_u8\.spv is not what its manifest says"):
        pipeline.shipped_module("sort_u8")
    pipeline.shipped_module.cache_clear()


@pytest.mark.skipif(not shutil.which("spirv-val"), reason="spirv-val is not installed: nox -s system")
def test_shipped_modules_are_valid():
    version = subprocess.run(("spirv-val", "--version"), capture_output=True, text=True, check=True).stdout
    knows_matrices = tuple(map(int, re.search(r"v(\d+)\.(\d+)", version).groups())) >= (2025, 2)
    for name in LISTED:
        if name.startswith("gemm_units") and not knows_matrices:
            continue  # ci/build_shaders.py says which version the module was validated with
        assert not validated(pipeline.shipped_module(name)), name


@pytest.mark.skipif(not shutil.which("spirv-val"), reason="spirv-val is not installed: nox -s system")
@pytest.mark.parametrize("row", REDUCTIONS, ids=lambda row: row.name)
def test_reduction_modules_are_valid_in_every_dtype_and_pass(row):
    for x, outs in reduction_dtypes(row):
        for shape in (
            Pass(False, False, True, 4, 1, 2),
            Pass(False, True, False, 16, 4, 4),
            Pass(True, False, True, 16),
        ):
            complaint = validated(emit_reduction(row, x, outs, shape).words)
            assert not complaint, f"{row.name} {x.name} {shape}: {complaint}"


def test_reduction_modules_of_floats_below_64_bits_do_not_ask_for_float64():
    for row in REDUCTIONS:
        for x, outs in reduction_dtypes(row):
            if float64 not in (x, *outs):
                words = memoryview(emit_reduction(row, x, outs, Pass(False, False, True, 4)).words).cast("I")
                assert 10 not in [words[i + 1] for i in range(5, 40) if words[i] == 2 << 16 | 17], row.name
