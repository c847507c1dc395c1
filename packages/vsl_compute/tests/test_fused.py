"""Fused rows: what their texts mean, what is refused, and that every form of them is well made."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import vsl_compute as vsl
from vsl_compute import dtypes
from vsl_compute.backends.vulkan.fused_module import emit_fused
from vsl_compute.errors import RowError
from vsl_compute.kernels.fused import HELD, MOST, geometry, render_fused
from vsl_compute.ops.table import find
from vsl_compute.rows.dialect import CUDA, OPENCL
from vsl_compute.rows.evaluate import values
from vsl_compute.rows.fused import FUSED, TABLE, fused

ROWS = pytest.mark.parametrize("row", FUSED, ids=lambda row: row.name)


def meaning(row, arrays: dict[str, np.ndarray], scalars: dict[str, float]) -> list[np.ndarray]:
    """The statements one after another, over the last axis, in float64."""
    known = {name: arrays.get(name, row.absent.get(name)) for name in row.args} | scalars | {"k": np.arange(7.0)}
    for s in row.statements:
        names = tuple(n for n in known if n in s.text)
        value = np.asarray(values((s.text,), names)(*(known[n] for n in names)))
        if s.first:
            value = value[..., :1]
        if s.reduction:
            value = {"sum": np.sum, "max": np.max}[s.reduction.name](value, axis=-1, keepdims=True)
        known[s.target] = value
    return [known[name] for name in row.outputs]


@ROWS
@pytest.mark.parametrize("whole", [True, False])
def test_a_fused_row_means_what_its_op_means(row, whole: bool):
    rng = np.random.default_rng(5)
    optional = {a.rstrip("?") for a in find(row.name).args if a.endswith("?")}
    arrays = {}
    for name in row.args:
        if whole or name not in optional:
            shape = (7,) if name in row.along else (3, 1) if name in row.single else (3, 7)
            shape = (7,) if row.name == "counted_mean" else shape
            arrays[name] = np.abs(rng.normal(size=shape)) + 0.1 if name != "target" else np.array([[2], [4], [6]])
    context = vsl.ComputeContext("cpu")
    known = {
        "normalized_shape": (7,),
        "axis": -1,
        "ignore_index": 4,
        "label_smoothing": 0.25 if whole else 0.0,
        "eps": 1e-5,
    }
    options = {name: known[name] for name in find(row.name).attributes}
    kinds = {name: "int64" if name == "target" else "float64" for name in row.args}
    given = [context.asarray(arrays[n], kinds[n]) if n in arrays else None for n in row.args]
    got = vsl.run(row.name, *given, **options)

    expected = meaning(row, arrays, {"n": 7.0} | {name: float(known[name]) for name in row.scalars})
    for one, want in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        np.testing.assert_allclose(one.to_host(), want, rtol=1e-12, atol=1e-14)


def test_what_no_kernel_can_say_is_refused_at_import():
    for texts, words in (
        (("y = sum(m)", "m = x"), "'m' names neither"),
        (("m = sum(x)", "y = max(m)"), "takes one number for many"),
        (("y = x", "y = x"), "assigns a name twice"),
        (("y = first(x - 1)",), "not part of the grammar"),
        (("z = x",), "not all assigned"),
    ):
        with pytest.raises(RowError, match=words):
            fused("wrong", "f>f", "x", "y", *texts).statements  # noqa: B018  # taken apart when first asked for


@pytest.mark.parametrize("group", [4, 32, 256])
def test_a_geometry_covers_its_row_and_wastes_less_than_half(group: int):
    for vectors in (True, False):
        for aligned in (True, False):
            for n in [*range(1, 300), 1000, 1024, 4096, 5000, 20000]:
                shape = geometry(n, vectors=vectors, aligned=aligned, group=group)
                if shape is None:
                    assert n > group * (MOST // 2 if vectors else HELD // 2)
                    continue
                reach = shape.width * shape.chunks * shape.lanes
                assert reach >= n
                assert shape.exact == (reach == n) or not vectors
                assert shape.width * shape.chunks <= MOST
                assert shape.group % shape.lanes == 0
                if vectors:
                    assert reach < 2 * n + 4 * shape.width


def forms(row):
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        stored = {"f": dtype, "n": dtypes.float64 if dtype is dtypes.float64 else dtypes.float32, "i": dtypes.int64}
        stored = {k: d for k, d in stored.items() if k in row.signature.inputs}
        for n in (7, 77, 1024, 1000):
            for absent in {(), tuple(row.absent)}:
                left_out = frozenset(a for a in absent if a in row.args)
                for shared in {frozenset[str](), row.single - left_out}:
                    yield (
                        stored,
                        geometry(n, vectors=True, aligned=True, group=64),
                        {"absent": left_out, "shared": shared},
                    )


@ROWS
def test_texts_render_whole_and_names_tell_them_apart(row):
    seen: dict[str, str] = {}
    for dialect in (CUDA, OPENCL):
        seen.clear()
        for stored, shape, how in forms(row):
            kernel = render_fused(row, dialect, stored, shape, **how)
            assert kernel.text.count("{") == kernel.text.count("}")
            assert kernel.text.count("(") == kernel.text.count(")")
            assert seen.setdefault(kernel.name, kernel.text) == kernel.text


@ROWS
def test_modules_are_valid(row):
    if shutil.which("spirv-val") is None:
        pytest.skip("spirv-val is not installed (apt-get install spirv-tools)")
    for stored, shape, how in forms(row):
        kernel = emit_fused(row, stored, shape, **how)
        command = ("spirv-val", "--target-env", "vulkan1.2", "-")
        done = subprocess.run(command, input=kernel.words, capture_output=True, check=False)
        assert not done.returncode, f"{kernel.name}: {done.stderr.decode()}"


def test_each_array_is_read_once_and_written_once():
    """What fusing is for: loads and stores through physical addresses, in the module of softmax."""
    shape = geometry(1024, vectors=True, aligned=True, group=256)
    words = emit_fused(TABLE["softmax"], {"f": dtypes.float32}, shape).words
    listed = np.frombuffer(words, np.uint32)
    loads = stores = 0
    at = 5
    while at < len(listed):
        code, length = listed[at] & 0xFFFF, listed[at] >> 16
        loads += code == 61 and length == 6  # with an alignment, as only such addresses have
        stores += code == 62 and length == 5
        at += int(length)
    assert (loads, stores) == (shape.chunks, shape.chunks)
