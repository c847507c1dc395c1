"""`vsl validate` on real devices: roadmap rows D25 (against the CPU), D26 (stress sizes) and D27 (two GPU backends)."""

from __future__ import annotations

import pytest

import vsl_compute
from vsl_compute.testing import SELECTION

GRADIENTS = {"matmul": 2, "relu": 1, "multiply": 2, "layer_norm": 3, "conv2d": 3}


def judged(report, ops):
    """See that nothing failed, and that every op's value was judged."""
    assert [(row.op, row.part, row.where) for row in report.rows if row.verdict == "fail"] == []
    assert {row.op for row in report.rows if row.verdict == "pass" and row.part.startswith("value")} >= set(ops)
    assert report.passed
    return report


def test_d25_the_suite_agrees_with_the_cpu(backend_name):
    """gemm, relu, mul_vec, layernorm, conv2d and all their gradients; the CPU itself with the oracle."""
    against = None if backend_name == "cpu" else "cpu"
    report = judged(vsl_compute.validate(backend_name, against, ["f32"], ops=[*GRADIENTS]), GRADIENTS)
    for op, count in GRADIENTS.items():
        parts = {row.part for row in report.rows if row.op == op and row.part.startswith("gradient of")}
        assert len(parts) >= count, (op, parts)


@pytest.mark.slow
def test_d26_sizes_from_1_to_4097_odd_thin_strided_with_nan_and_infinities(backend_name):
    """Slow: large products on a software device."""
    ops = ["matmul", "multiply", "maximum", "softmax", "sum", "max"]
    report = judged(vsl_compute.validate(backend_name, None, ["f32"], stress=True, ops=ops), ops)
    assert report.stress
    plain = vsl_compute.validate(backend_name, None, ["f32"], ops=["multiply"])
    most = max(row.elements for row in report.rows if row.op == "multiply")
    assert most > 10 * max(row.elements for row in plain.rows)


def test_d27_two_gpu_backends_agree_on_equal_inputs(request):
    """Within the sum of what is allowed to both."""
    selection = request.config.stash[SELECTION]
    pair = ("vulkan", "opencl")
    for name in pair:
        if selection.setting.get(name, "0") == "0":
            pytest.skip(f"{name} is left out of this run")
        if reason := selection.why_absent(name):
            pytest.skip(reason)
    report = judged(vsl_compute.validate(*pair, ["f32"], ops=["matmul", "gelu", "softmax"]), ["matmul", "gelu"])
    assert report.against.backend == "opencl"
