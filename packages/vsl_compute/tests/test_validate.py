"""vsl_compute.validate: the CPU passes, a broken backend is named op by op, and what a report and the command say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vsl_compute
from vsl_compute import cli, registry
from vsl_compute.backend import Capabilities, DeviceInfo
from vsl_compute.backends.cpu.backend import native
from vsl_compute.dtypes import float16, float32
from vsl_compute.errors import AttributeValueError, DTypeError, UnavailableError, UnsupportedError
from vsl_compute.ops.table import OPS
from vsl_compute.rows.elementwise import ROWS
from vsl_compute.rows.reductions import REDUCTIONS
from vsl_compute.rows.updates import UPDATES
from vsl_compute.validation.meanings import MEANINGS
from vsl_compute.validation.trials_ops import cases_of
from vsl_compute.validation.validate import NOT_JUDGED


def _load():
    """planted.py lies beside this file; with importlib's import mode that is no package."""
    spec = importlib.util.spec_from_file_location("planted_for_validate", Path(__file__).with_name("planted.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


planted = _load()


class Driver:
    """One device: a CPU backend with a break."""

    name = planted.NAME

    def __init__(self, make):
        self.make = make

    def devices(self):
        host = registry.driver("cpu").devices()[0]
        return [
            DeviceInfo(f"{self.name}:0", self.name, 0, "planted", "cpu", host.memory_bytes, host.dtypes, host.driver)
        ]

    def open(self, index):
        return self.make(self.devices()[index])


@pytest.fixture
def install(monkeypatch):
    """Make a backend known as "planted" for one test."""

    def known(make):
        monkeypatch.setitem(registry._drivers, planted.NAME, Driver(make))
        for spec in (planted.NAME, f"{planted.NAME}:0"):
            monkeypatch.setitem(registry._opened, spec, None)
            monkeypatch.delitem(registry._opened, spec)
        return planted.NAME

    return known


class LastElementOff(planted.Planted):
    """tanh, one element in float32 a little off: what a bad tail of a kernel gives."""

    def elementwise(self, row, out, args, scalars):
        super().elementwise(row, out, args, scalars)
        if row.name == "tanh" and out.dtype is float32 and out.shape == (5, 7):
            native(out)[4, 6] += 1e-4


class Raises(planted.Planted):
    """A driver's error in the middle of a run."""

    def gemm(self, out, a, b, *, alpha=1.0, beta=0.0):
        raise RuntimeError("CL_OUT_OF_RESOURCES\nat line 7")


class NoHalf(planted.Planted):
    """A device without float16, and without tanh in float32."""

    def __init__(self, info):
        super().__init__(info)
        functions = {d: names for d, names in self.capabilities.functions.items() if d is not float16}
        functions[float32] = functions[float32] - {"tanh"}
        self.capabilities = replace(self.capabilities, functions=functions)
        assert isinstance(self.capabilities, Capabilities)


class Refuses(planted.Planted):
    """Declares sinh and does not run it."""

    def elementwise(self, row, out, args, scalars):
        if row.name == "sinh":
            raise UnsupportedError("planted: no sinh")
        super().elementwise(row, out, args, scalars)


def failed(report):
    return sorted({(row.op, row.part) for row in report.rows if row.verdict == "fail"})


def test_every_op_has_cases_and_a_meaning():
    """A new primitive or composite fails here, with its name, until it can be validated."""
    assert [op.name for op in OPS if op.name not in NOT_JUDGED and not cases_of(op, stress=False)] == []
    assert sorted({op.name for op in OPS} - MEANINGS.keys() - set(NOT_JUDGED)) == []


@pytest.mark.slow
def test_the_cpu_passes_in_float32_and_every_op_and_gradient_is_judged():
    """Slow: every op there is."""
    seen = []
    report = vsl_compute.validate("cpu", progress=lambda done, count, name: seen.append((done, count, name)))
    assert failed(report) == []
    assert report.passed
    assert report.counts["unsupported"] == 0
    tables = (ROWS, REDUCTIONS, OPS, UPDATES)
    assert {row.op for row in report.rows} == {e.name for table in tables for e in table} - set(NOT_JUDGED)
    parts = {(row.op, row.part) for row in report.rows}
    missing = [
        (row.name, name)
        for row in ROWS
        for name, text in zip(row.args, row.gradients, strict=False)
        if text and row.signature.outputs in "nf" and (row.name, f"gradient of {name}") not in parts
    ]
    assert missing == []
    assert [op.name for op in OPS if op.backward and not any(o == op.name and "gradient" in p for o, p in parts)] == []
    assert [number for number, _, _ in seen] == list(range(seen[0][1]))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_other_floating_dtypes_pass(dtype):
    """A few of each kind: all of them take a minute."""
    ops = ["tanh", "divide", "gelu", "sum", "logsumexp", "matmul", "batch_norm", "max_pool2d", "softmax", "adamw"]
    report = vsl_compute.validate("cpu", dtypes=[dtype], ops=ops)
    assert failed(report) == []
    assert {row.op for row in report.rows} == set(ops)


def test_stress_passes_on_odd_sizes_and_on_nan_and_infinities():
    report = vsl_compute.validate("cpu", dtypes=["f32"], stress=True, ops=["maximum", "relu", "gelu", "max", "sort"])
    assert failed(report) == []
    plain = vsl_compute.validate("cpu", dtypes=["f32"], ops=["relu"])
    assert report.rows[0].elements > plain.rows[0].elements


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_every_row_agrees_with_the_oracle_on_pairs_of_nan_infinities_and_large_numbers(dtype):
    """Slow: every row, at odd sizes up to 4097."""
    report = vsl_compute.validate("cpu", dtypes=[dtype], stress=True, ops=[row.name for row in ROWS])
    assert failed(report) == []


def test_one_wrong_element_is_found_and_named_with_its_index_and_input(install):
    spec = install(LastElementOff)
    report = vsl_compute.validate(spec, dtypes=["f32"], ops=["tanh", "exp", "sigmoid", "softmax"])
    assert ("tanh", "value") in failed(report)
    assert {op for op, _ in failed(report)} == {"tanh"}
    assert not report.passed
    first = report.rows[0]
    assert (first.op, first.part, first.verdict, first.index) == ("tanh", "value", "fail", (4, 6))
    assert first.ulp > 100 * first.tolerance
    assert first.wrong >= 1
    x = float(first.inputs.rpartition(": ")[2])
    assert float(first.expected) == pytest.approx(np.tanh(x), abs=1e-6)
    assert float(first.got) == pytest.approx(np.tanh(x) + 1e-4, abs=1e-6)


TEETH = (
    #  break                 ops run                              what fails
    ("operands-of-update",   ["adam", "adamw", "sgd"],            {"adamw"}),
    ("operands",             ["multiply", "divide", "subtract"],  {"divide"}),
    ("duplicates",           ["scatter", "gather", "sort"],       {"scatter", "gather"}),
    ("axis",                 ["sum", "prod", "mean"],             {"sum"}),
    ("transpose",            ["matmul", "sum"],                   {"matmul"}),
    ("override",             ["conv2d", "matmul", "linear"],      {"conv2d"}),
    ("stride",               ["exp"],                             {"exp"}),
    ("past-the-end",         ["exp"],                             {"exp"}),
    ("broadcast",            ["hypot"],                           {"hypot"}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "ops", "wrong"), TEETH, ids=[case[0] for case in TEETH])
def test_a_broken_backend_fails_in_exactly_the_broken_op(install, name, ops, wrong):
    spec = install(planted.BREAKS[name].backend)
    report = vsl_compute.validate(spec, dtypes=["f32"], ops=ops)
    assert {op for op, _ in failed(report)} == wrong
    assert all(row.where for row in report.rows if row.verdict == "fail")


@pytest.mark.parametrize(("name", "op"), [("nan", "relu"), ("nan-reduced", "max"), ("tail", "exp")])
def test_stress_finds_what_ordinary_numbers_and_sizes_hide(install, name, op):
    spec = install(planted.BREAKS[name].backend)
    report = vsl_compute.validate(spec, dtypes=["f32"], stress=True, ops=[op])
    assert {name for name, _ in failed(report)} == {op}


def test_a_wrong_gradient_is_told_from_a_right_value(monkeypatch):
    """The truth of a gradient is a difference of the meaning, not the row's own text."""
    row = next(r for r in ROWS if r.name == "silu")
    monkeypatch.setitem(row.__dict__, "gradients", ("g * (1 / (1 + exp(-x)))",))
    from vsl_compute.rows import derive

    derive.gradient_row.cache_clear()
    try:
        report = vsl_compute.validate("cpu", dtypes=["f32"], ops=["silu"])
    finally:
        derive.gradient_row.cache_clear()
    assert failed(report) == [("silu", "gradient of x")]


def test_what_a_device_declares_that_it_lacks_is_unsupported_and_no_failure(install):
    spec = install(NoHalf)
    report = vsl_compute.validate(spec, dtypes=["f16", "f32"], ops=["tanh", "exp", "matmul", "softmax"])
    assert failed(report) == []
    assert report.passed
    unsupported = {(row.op, row.dtype) for row in report.rows if row.verdict == "unsupported"}
    assert unsupported == {(op, "float16") for op in ("tanh", "exp", "matmul", "softmax")} | {("tanh", "float32")}
    assert all("planted:0" in row.reason for row in report.rows if row.verdict == "unsupported")


def test_what_is_declared_and_refused_or_raises_has_failed_and_the_run_goes_on(install):
    spec = install(Refuses)
    report = vsl_compute.validate(spec, dtypes=["f32"], ops=["sinh", "cosh"])
    assert {op for op, _ in failed(report)} == {"sinh"}
    assert "declared, but refused" in report.rows[0].reason
    spec = install(Raises)
    report = vsl_compute.validate(spec, dtypes=["f32"], ops=["matmul", "exp"])
    assert failed(report) == [("matmul", "value")]
    assert report.rows[0].where.startswith("RuntimeError: CL_OUT_OF_RESOURCES (")
    assert "line 7" not in str(report)


def test_another_device_can_stand_in_the_truth_s_place(install):
    spec = install(planted.Planted)
    report = vsl_compute.validate(spec, against="cpu", dtypes=["f32"], ops=["tanh", "sum", "conv2d", "adam"])
    assert report.passed
    assert report.against.spec == "cpu:0"
    assert "against cpu:0" in report.summary
    spec = install(planted.BREAKS["operands"].backend)
    report = vsl_compute.validate("cpu", against=spec, dtypes=["f32"], ops=["divide", "add"])
    assert {op for op, _ in failed(report)} == {"divide"}


def test_what_cannot_be_asked_is_refused_by_name():
    with pytest.raises(AttributeValueError, match="one device; leave against out"):
        vsl_compute.validate("cpu", against="cpu:0")
    with pytest.raises(DTypeError, match="f31"):
        vsl_compute.validate("cpu", dtypes=["f31"])
    with pytest.raises(DTypeError, match="dtypes is empty"):
        vsl_compute.validate("cpu", dtypes=[])
    with pytest.raises(UnsupportedError, match=r"no op is called 'thanh'; did you mean tanh"):
        vsl_compute.validate("cpu", ops=["thanh"])
    with pytest.raises(DTypeError, match="gelu takes none of int32; nothing was compared"):
        vsl_compute.validate("cpu", dtypes=["i32"], ops=["gelu"])
    with pytest.raises(UnavailableError):
        vsl_compute.validate("planted:0" if "planted" in registry._drivers else "vulkan:99")


def test_a_report_reads_as_a_table_as_markdown_and_as_json(install):
    spec = install(planted.BREAKS["axis"].backend)
    report = vsl_compute.validate(spec, dtypes=["f32", "i32"], ops=["exp", "sum"])
    lines = str(report).splitlines()
    assert lines[0].split()[:3] == ["verdict", "kind", "op"]
    assert lines[1].startswith("fail")
    assert lines[-1].startswith("FAILED: planted:0 against the oracle, int32, float32: ")
    assert "vsl-compute" in lines[-1]
    assert "driver" in lines[-1]
    document = json.loads(report.to_json())
    assert document["passed"] is False
    assert document["counts"]["fail"] == sum(row["verdict"] == "fail" for row in document["rows"]) > 0
    wrong = next(row for row in document["rows"] if row["dtype"] == "int32" and row["op"] == "sum")
    assert wrong["ulp"] is None  # an integer is right or wrong
    markdown = report.to_markdown()
    assert markdown.startswith("# vsl validate planted:0\n")
    assert markdown.count("\n| fail |") == report.counts["fail"]


def test_the_command_prints_writes_and_exits_by_the_verdict(install, capsys, tmp_path):
    base = ["validate", "--backend", "cpu", "--dtype", "f32", "--op", "exp"]
    assert cli.main(base) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("passed: cpu:0")
    assert cli.main([*base, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["op"] == "exp"
    assert cli.main([*base, "--out", str(tmp_path / "report.md")]) == 0
    assert (tmp_path / "report.md").read_text().startswith("# vsl validate cpu:0\n")
    assert capsys.readouterr().out.startswith("passed: ")
    assert cli.main([*base, "--out", str(tmp_path / "none" / "report.json")]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["passed"] is True
    assert printed.err.startswith("vsl validate: cannot write")
    spec = install(planted.BREAKS["operands"].backend)
    assert cli.main(["validate", "--backend", spec, "--dtype", "f32", "--op", "divide", "--markdown"]) == 1
    assert "| fail | row | divide | value |" in capsys.readouterr().out
    assert cli.main(["validate", "--dtype", "f31"]) == 1
    assert capsys.readouterr().err.startswith("vsl: dtype 'f31'")


def test_the_command_shows_progress_on_a_terminal_only(capsys, monkeypatch):
    arguments = ["validate", "--backend", "cpu", "--dtype", "f32", "--op", "exp"]
    assert cli.main(arguments) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(arguments) == 0
    assert "1/1 exp" in capsys.readouterr().err


def test_importing_the_package_does_not_load_the_oracle():
    script = "import sys, vsl_compute; print(any(m.startswith('vsl_compute.validation') for m in sys.modules)); vsl_compute.validate"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_validation_needs_no_pytest():
    """A user has none."""
    script = "import sys, vsl_compute; vsl_compute.validate; print('pytest' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_attention_keeps_its_dtype_whichever_output_a_gradient_comes_from(dtype):
    """Its logarithms are float32; what the scores receive from those alone is narrow again, as they are."""
    report = vsl_compute.validate(
        "cpu", dtypes=[dtype], ops=["attention_shares", "attention_backward", "attention_mask_backward"]
    )

    assert report.passed, report.to_markdown()
