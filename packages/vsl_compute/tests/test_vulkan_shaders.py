"""The kernels that ship compiled: in step with their manifest, all that is asked for is there, and spirv-val passes them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from importlib import resources

import numpy as np
import pytest

from vsl_compute import dispatch
from vsl_compute.backends.vulkan import pipeline
from vsl_compute.backends.vulkan.float_controls import FloatControls, controlled, together
from vsl_compute.backends.vulkan.indexing import FLOATS, INDEX, WIDE
from vsl_compute.backends.vulkan.reduce_module import Pass, emit_reduction
from vsl_compute.dispatch import asarray
from vsl_compute.dtypes import float64
from vsl_compute.errors import KernelCompileError
from vsl_compute.kernels.attention import FORWARD, KEYS, QUERIES
from vsl_compute.kernels.convolution import TAPS, WINDOWS
from vsl_compute.kernels.reduce import reduction_dtypes
from vsl_compute.rows.reductions import REDUCTIONS

FOLDER = resources.files(pipeline.__package__) / "spv"
LISTED = json.loads((FOLDER / "manifest.json").read_text())["modules"]


def validated(module: bytes) -> str:
    """spirv-val's complaint of a module as it is loaded where every width of floats keeps NaN and denormals."""
    words = controlled(module, FloatControls((16, 32, 64), [(16, 32, 64)]))
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
    wanted |= {f"{kernel}_{w}" for kernel in ("sort", "turn") for w in WIDE.values()}
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


def modes(words: bytes) -> list[tuple[int, ...]]:
    """The operands of a module's OpExecutionMode, less the entry point's id."""
    module, at, found = memoryview(words).cast("I"), 5, []
    while at < len(module):
        length = module[at] >> 16
        if module[at] & 0xFFFF == 16:
            found.append(tuple(module[at + 2 : at + length]))
        at += length
    return found


PRESERVE, DENORM = 4461, 4459  # SignedZeroInfNanPreserve, DenormPreserve


@pytest.mark.parametrize(
    ("name", "widths", "wanted"),
    [
        ("attention_forward_f16", (16, 32, 64), [32]),  # halves are read as integers there
        ("gemm_f64", (16, 32, 64), [64]),
        ("gemm_f64", (32,), []),
        ("gather_u32_i32", (16, 32, 64), []),
        ("gemm_units_f16", (16, 32, 64), [16, 32]),
        ("gemm_units_bf16", (16, 32, 64), [32]),  # bfloat16 has 16 bits, and no such promise
    ],
)
def test_a_module_asks_to_keep_nan_in_the_widths_that_it_and_the_device_have(name, widths, wanted):
    loaded = modes(controlled(pipeline.shipped_module(name), FloatControls(widths)))
    assert sorted(mode[1] for mode in loaded if mode[0] == PRESERVE) == wanted


@pytest.mark.parametrize(
    ("kept", "independence", "wanted"),
    [
        ((16, 32, 64), 1, [(16,), (32,), (64,)]),  # of all widths apart
        ((32, 64), 1, [(32,), (64,)]),
        ((16, 32, 64), 0, [(32,), (16, 64)]),  # of 32 bits apart
        ((32, 64), 0, [(32,)]),
        ((16, 32, 64), 2, [(16, 32, 64)]),  # of none
        ((16, 32), 2, []),
    ],
)
def test_denormals_are_kept_in_the_widths_that_a_device_lets_one_ask_for(kept, independence, wanted):
    """Vulkan 1.2, VkShaderFloatControlsIndependence: widths that may not differ are declared alike, whichever a module has."""
    groups = together(kept, independence)
    assert list(groups) == wanted
    loaded = modes(controlled(pipeline.shipped_module("gemm_f64"), FloatControls((), groups)))
    assert [mode[1] for mode in loaded if mode[0] == DENORM] == sorted(
        w for group in wanted if 64 in group for w in group
    )


def test_a_module_without_such_floats_is_loaded_as_it_is():
    words = pipeline.shipped_module("gather_u32_i32")
    assert controlled(words, FloatControls((16, 32, 64), [(16, 32, 64)])) == words


def test_every_module_that_a_device_makes_a_pipeline_of_asks_it(fresh, monkeypatch):
    """Emitted and shipped ones; software devices here keep NaN in all widths."""
    created = []

    def listed(words, controls):
        assert controls is fresh.device.features.float_controls
        created.append(controlled(words, controls))
        return created[-1]

    monkeypatch.setattr(pipeline, "controlled", listed)
    x = asarray(fresh, np.ones((64, 64), np.float32))
    dispatch.run("exp", x)
    dispatch.run("matmul", x, x)
    assert 32 in fresh.device.features.float_controls.nan
    assert len(created) >= 2
    assert all((PRESERVE, 32) in modes(words) for words in created)
