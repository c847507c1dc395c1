"""`vsl validate` on real devices: roadmap rows D25 (against the CPU), D26 (stress sizes) and D27 (two GPU backends)."""

from __future__ import annotations

import numpy as np
import pytest

import vsl_compute
from vsl_compute.dtypes import float32
from vsl_compute.ops.table import TABLE
from vsl_compute.testing import require
from vsl_compute.validation.validate import _trials

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


STRESSED = ("matmul", "relu", "multiply", "maximum", "softmax", "layer_norm", "conv2d", "sum", "max")


def test_d26_stress_has_every_size_shape_layout_and_value_that_the_row_names():
    """1 to 2048 and beyond, odd, non-square, batched, non-contiguous, NaN and infinities: of what is run on every device."""
    trials = {op: [*_trials(TABLE[op], float32, stress=True)] for op in STRESSED}
    for op, found in trials.items():
        xs = [x for trial in found for x in trial.inputs if x is not None]
        assert any(x.layout != "dense" for x in xs), op
        assert any(np.isnan(x.values).any() for x in xs), op
        if op != "layer_norm":  # whose mean of an infinity is that, or NaN
            assert any(np.isposinf(x.values).any() for x in xs), op
            assert any(np.isneginf(x.values).any() for x in xs), op
    products = [tuple(x.shape for x in trial.inputs if x is not None) for trial in trials["matmul"]]
    for size in (1, 3, 31, 1023, 1025, 4097):
        assert any(size == a[-2] for a, b in products), "rows"
        assert any(size == a[-1] for a, b in products), "what is summed over"
        assert any(size == b[-1] for a, b in products), "columns"
    assert any(min(*a[-2:], *b[-2:]) > 64 and a[-1] != a[-2] for a, b in products), "several tiles each way, not square"
    assert any(len(a) == 3 for a, b in products), "batched"
    assert {(1,), (4097,)} <= {x.shape for trial in trials["multiply"] for x in trial.inputs}


@pytest.mark.slow
def test_d26_sizes_from_1_to_4097_odd_thin_strided_with_nan_and_infinities(backend_name):
    """Slow: large products on a software device."""
    ops = ["matmul", "relu", "multiply", "maximum", "softmax", "sum", "max"]
    report = judged(vsl_compute.validate(backend_name, None, ["f32"], stress=True, ops=ops), ops)
    assert report.stress


def test_d27_two_gpu_backends_agree_on_equal_inputs(request):
    """Within the sum of what is allowed to both."""
    pair = ("vulkan", "opencl")
    for name in pair:
        require(request, name)
    report = judged(vsl_compute.validate(*pair, ["f32"], ops=["matmul", "gelu", "softmax"]), ["matmul", "gelu"])
    assert report.against.backend == "opencl"
