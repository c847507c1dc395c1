"""What is worked out for one option is not had for another that equals it: 1, 1.0 and True are one key of a dict."""

from __future__ import annotations

import numpy as np
import pytest
import simulated_cuda  # conftest.py has brought it

import vsl_compute as vsl
from vsl_compute.dispatch import asarray, composite, run
from vsl_compute.errors import AttributeValueError
from vsl_compute.ops.table import find
from vsl_compute.rows.row import Reduction
from vsl_compute.validation.cases_ops import CASES, VALUES, Statistic


def equals(value):
    """Values of other types that equal one: of each of a tuple's parts in turn."""
    if type(value) is tuple:
        return [(*value[:i], other, *value[i + 1 :]) for i, part in enumerate(value) for other in equals(part)]
    if type(value) not in (bool, int, float):
        return []
    others = (kind(value) for kind in (bool, int, float, np.float64, np.int64) if abs(value) < 2**63)
    return [other for other in others if other == value and type(other) is not type(value)]


def drawn(backend, makers, rng):
    views = []
    for maker in makers:
        before = [v if v is None else v.to_host() for v in views]
        host = None if maker is None else maker(rng, *before) if isinstance(maker, Statistic) else maker(rng)
        narrow = host is not None and host.dtype == np.float64
        views.append(None if host is None else asarray(backend, host, "float32" if narrow else None))
    return views


def outcome(op, views, options):
    """What a call gives: its shapes and dtypes, or its error."""
    try:
        made = run(op, *views, **options)
    except Exception as error:  # noqa: BLE001  # whatever it is, it must be that whenever it is asked
        return type(error), str(error)
    return [(v.dtype.name, v.shape) for v in (made if isinstance(made, tuple) else (made,))]


def forget(backend):
    composite._plans.clear()
    if type(backend.prepared) is dict:
        backend.prepared.clear()


def check_each(backend, op, options, makers, rng):
    """Before and after the right option was seen, its equals come to the same."""
    views, tried = drawn(backend, makers, rng), 0
    defaults = {"axes": None, "keepdims": False} if type(find(op)) is Reduction else find(op).attributes
    for name, value in {**defaults, **options}.items():
        for other in equals(value):
            forget(backend)
            alone = outcome(op, views, {**options, name: other})
            forget(backend)
            for _ in range(3):  # as it is, watched, from what was written down
                outcome(op, views, {**options, name: value})
            assert outcome(op, views, {**options, name: other}) == alone, (op, name, value, other)
            tried += 1
    return tried


def test_an_option_is_refused_or_taken_whatever_was_seen_before_it(rng):
    """For every op that has a case, every option, every type."""
    backend = vsl.get("cpu")

    tried = sum(check_each(backend, op, options, makers, rng) for op, options, makers, _ in CASES + VALUES)

    assert tried > 300


@pytest.mark.skipif(simulated_cuda.COMPILER is None, reason="the simulation needs a C++ compiler: clang++ or g++")
def test_a_call_that_was_made_ready_takes_no_other_option_for_its_own(rng):
    backend = simulated_cuda.opened()
    normal = lambda *shape: lambda rng: rng.standard_normal(shape)  # as the table of cases writes it

    for op, options, makers in (
        ("max_pool2d", {"kernel_size": 2, "stride": (1, 2)}, (normal(2, 3, 6, 6),)),
        ("softmax", {"axis": 1}, (normal(4, 6),)),
        ("sum", {"axes": (1, 2), "keepdims": True}, (normal(4, 6, 2),)),
        ("layer_norm", {"normalized_shape": (5,)}, (normal(4, 5), normal(5), normal(5))),
        ("pad", {"widths": ((1, 0), (2, 1)), "value": 2.0}, (normal(3, 4),)),
    ):
        assert check_each(backend, op, options, makers, rng)
    backend.close()


@pytest.mark.parametrize("wrong", [(1, 2.0), (True, 2), (1, np.float32(2))], ids=repr)
def test_a_stride_of_another_type_is_refused_after_its_equal(wrong):
    x = asarray(vsl.get("cpu"), np.zeros((1, 1, 6, 6), np.float32))
    for _ in range(3):
        run("max_pool2d", x, kernel_size=2, stride=(1, 2))

    with pytest.raises(AttributeValueError, match="max_pool2d: stride="):
        run("max_pool2d", x, kernel_size=2, stride=wrong)


SHAPES = {
    "reshape": lambda x, a, b: x.reshape((a, b)),
    "expand": lambda x, a, b: x.reshape((1, 38)).expand((a, 38)),
    "slice": lambda x, a, b: x.slice(slice(0, a), b),
    "slice, step": lambda x, a, b: x.slice(slice(None, None, a)),
    "permute": lambda x, a, b: x.permute((a - 1, a - 2)),
    "window": lambda x, a, b: x.window((1,), (a,), (1,), (1,)),
}


@pytest.mark.parametrize("first", ["right", "wrong"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_operation_takes_ints_alone_whatever_was_seen_before(name, first):
    """And what it refuses leaves nothing behind for a right one to find, since layouts are shared by the whole process."""
    x = asarray(vsl.get("cpu"), np.arange(38.0, dtype=np.float32).reshape(2, 19))
    x.layout.derived.clear()
    if first == "right":
        SHAPES[name](x, 2, 1 if name.startswith("slice") else 19)

    with pytest.raises(TypeError, match="integer"):
        SHAPES[name](x, 2.0, 1 if name.startswith("slice") else 19)

    made = SHAPES[name](x, 2, 1 if name.startswith("slice") else 19)
    assert all(type(n) is int for n in (*made.shape, *made.strides))


def test_a_size_of_numpy_leaves_a_python_int():
    x = asarray(vsl.get("cpu"), np.arange(46.0, dtype=np.float32))

    made = x.reshape((np.int64(2), np.int32(23))).expand((np.int64(1), 2, 23)).slice(np.int8(0))

    assert all(type(n) is int for n in (*made.shape, *made.strides))
    assert x.reshape((2, 23)).shape == (2, 23)
