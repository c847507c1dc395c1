"""Compiled texts: what an error says, what is kept on disk, and that the compiler keeps IEEE 754."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.backends.opencl import loader
from vsl_compute.backends.opencl.program import OpenCLPrograms
from vsl_compute.backends.shared.cache import FileCache
from vsl_compute.backends.shared.parameters import BUFFER, number
from vsl_compute.dispatch import asarray, run
from vsl_compute.dtypes import float32, float64, int32, int64, uint32
from vsl_compute.errors import KernelCompileError
from vsl_compute.kernels.shell import Kernel
from vsl_compute.rows.elementwise import TABLE as ROWS


def text(name, body="out[0] = 1.0f;"):
    return Kernel(name, f"__kernel void {name}(__global float *out)\n{{\n    {body}\n}}\n", (), ())


@pytest.fixture
def programs(opencl, monkeypatch, tmp_path):
    """Makes the programs of the device anew, as a new process would; sources that were compiled are noted."""
    monkeypatch.setenv("VSL_CACHE_DIR", str(tmp_path))
    cl = loader.pyopencl()
    compiled = []

    class Module:
        def __getattr__(self, name):
            return getattr(cl, name)

        def Program(self, context, *source):
            if isinstance(source[0], str):
                compiled.append(source[0])
            return cl.Program(context, *source)

    def made():
        return OpenCLPrograms(Module(), opencl._context, opencl.programs._device)

    made.compiled = compiled
    return made


def test_an_error_shows_the_numbered_text_and_the_log(programs):
    with pytest.raises(KernelCompileError) as caught:
        programs().kernel(text("broken", "out[0] = nonsense;"), [BUFFER])
    message = str(caught.value)
    assert message.startswith("broken: ")
    assert "   3     out[0] = nonsense;" in message
    assert "undeclared" in message


def test_one_text_is_compiled_once_a_process(programs):
    these = programs()
    assert these.kernel(text("once"), [BUFFER]) is these.kernel(text("once"), [BUFFER])
    assert len(programs.compiled) == 1


@pytest.fixture
def joined(opencl):
    """Kernels are compiled together on processors only."""
    if not opencl.programs._device.type & loader.pyopencl().device_type.CPU:
        pytest.skip("a GPU's driver compiles all of a program at once, those too that nobody asks for")


@pytest.mark.usefixtures("joined")
def test_kernels_made_together_are_compiled_as_one_program_and_each_once(programs, tmp_path):
    these, kernels = programs(), [(text(name), [BUFFER]) for name in ("first", "second", "third", "second")]
    these.kernel(*kernels[0])
    these.together(kernels)
    these.together(kernels)
    assert [source.count("__kernel") for source in programs.compiled] == [1, 2]
    assert these.kernel(*kernels[1]) is these.kernel(*kernels[3])
    assert len(programs.compiled) == 2
    with pytest.raises(KernelCompileError, match=r"1 kernels, broken first: .*refuses this text"):
        these.together([(text("broken", "nonsense"), [BUFFER])])


@pytest.mark.usefixtures("joined")
def test_rows_made_ready_together_need_no_compiler_afterwards(programs, opencl, monkeypatch, rng):
    """Whatever the layouts and whichever argument is a number."""
    these = programs()
    monkeypatch.setattr(opencl, "programs", these)
    monkeypatch.setattr(opencl._rows, "_kernels", {})
    monkeypatch.setattr(opencl._rows, "_plans", {})
    row = ROWS["subtract"]
    hosts = (frozenset(), frozenset({"a"}), frozenset({"b"}))
    opencl.compile_ahead((row, {"n": dtype}, host) for dtype in (float32, int32) for host in hosts)
    assert len(programs.compiled) == 1
    for dtype in (float32, int32):
        x = rng.integers(-9, 9, (4, 5, 6)).astype(dtype.storage)
        view = asarray(opencl, x)
        for a, b, expected in (
            (view, view, x - x),
            (view.permute((2, 1, 0)), view.permute((2, 1, 0)), x.T - x.T),
            (view.slice(0), view.slice(1).slice(slice(0, 1)), x[0] - x[1][:1]),
            (view.permute((1, 0, 2)), view.slice(0).reshape((5, 1, 6)), x.transpose(1, 0, 2) - x[0][:, None]),
            (view, 3, x - dtype.storage.type(3)),
            (3, view, dtype.storage.type(3) - x),
        ):
            assert np.array_equal(run("subtract", a, b).to_host(), expected)
    assert sum("subtract" in source for source in programs.compiled) == 1  # a read may have copied


@pytest.mark.usefixtures("joined")
def test_integers_beside_floats_are_not_compiled_ahead(programs, opencl, monkeypatch):
    """They are cast first: there is no such kernel."""
    monkeypatch.setattr(opencl, "programs", programs())
    row = ROWS["standardize"]
    opencl.compile_ahead((row, {"f": float32, "n": dtype}, frozenset()) for dtype in (int32, float64))
    assert sum(source.count("standardize") > 0 for source in programs.compiled) == 1


def test_the_next_process_reads_the_binary(programs, tmp_path):
    programs().kernel(text("kept"), [BUFFER])
    (file,) = (tmp_path / "opencl").iterdir()
    assert file.stat().st_size > 100
    programs().kernel(text("kept"), [BUFFER])
    assert len(programs.compiled) == 1


def test_a_file_that_was_damaged_never_reaches_the_driver(programs, tmp_path):
    """PoCL loads what it is given: a binary that is cut short has ended the process, and each one after it."""
    programs().kernel(text("spoiled"), [BUFFER])
    (file,) = (tmp_path / "opencl").iterdir()
    good = file.stat().st_size
    file.write_bytes(file.read_bytes()[: good // 2])
    with pytest.warns(RuntimeWarning, match="damaged"):
        programs().kernel(text("spoiled"), [BUFFER])
    assert len(programs.compiled) == 2
    assert file.stat().st_size == good


@pytest.mark.parametrize("wrong", [b"not a binary", b"\0" * 5000])
def test_a_binary_that_the_driver_refuses_is_compiled_again(programs, tmp_path, wrong):
    programs().kernel(text("refused"), [BUFFER])
    (file,) = (tmp_path / "opencl").iterdir()
    FileCache("opencl").write(file.name, wrong)
    spoiled = file.read_bytes()
    programs().kernel(text("refused"), [BUFFER])
    assert len(programs.compiled) == 2
    assert file.read_bytes() != spoiled
    programs().kernel(text("refused"), [BUFFER])
    assert len(programs.compiled) == 2


def test_g09_maths_is_never_relaxed(opencl):
    options = opencl.programs._options
    for word in ("fast", "relaxed", "finite", "unsafe", "mad", "denorms"):
        assert word not in options


def test_products_and_sums_are_not_contracted(opencl):
    """x * x - y with y the rounded x * x is 0; a fused multiply-add would leave what rounding took away."""

    x = (1 + 2.0 ** -np.arange(1, 24)).astype(np.float32)
    square = -(x * x)
    got = run("multiply_add", *(asarray(opencl, v) for v in (x, x, square))).to_host()
    assert not got.any()


@pytest.mark.parametrize(
    ("given", "dtype", "passed"),
    [
        (1e300, float32, float("inf")), (-1e300, float32, float("-inf")), (1e300, float64, 1e300), (0.1, float32, float(np.float32(0.1))),
        (-1, uint32, 2**32 - 1), (2**31, int32, -(2**31)), (2**63, int64, -(2**63)), (True, int32, 1), (2**62 + 1, int64, 2**62 + 1),
    ],
)  # fmt: skip
def test_numbers_are_passed_as_their_dtype_holds_them(given, dtype, passed):
    assert number(given, dtype) == passed
