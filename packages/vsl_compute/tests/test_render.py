"""Rendered C-like text: what it says and what it never says; ci/render.py compiles all of it."""

from __future__ import annotations

import re

import pytest

from vsl_compute import dtypes
from vsl_compute.dtypes import DType
from vsl_compute.errors import RowError
from vsl_compute.kernels.reduce import SHAPES, reduction_dtypes, render_reduction
from vsl_compute.kernels.shell import LAYOUTS, render_row
from vsl_compute.kernels.update import render_update
from vsl_compute.rows.derive import gradient_row
from vsl_compute.rows.dialect import CUDA, OPENCL, Dialect
from vsl_compute.rows.elementwise import ROWS, TABLE
from vsl_compute.rows.kinds import assignments, update_parts
from vsl_compute.rows.reductions import REDUCTIONS
from vsl_compute.rows.reductions import TABLE as REDUCED
from vsl_compute.rows.row import update
from vsl_compute.rows.updates import TABLE as UPDATED

DIALECTS = pytest.mark.parametrize("dialect", [CUDA, OPENCL], ids=["cuda", "opencl"])
FLOAT = {"f": dtypes.float32, "n": dtypes.float32, "b": dtypes.bool_}


def value_of(text: str) -> str:
    """The function between storage and storage, without helpers and loops."""
    found = re.search(r"_value\(.*?\)\n\{\n(.*?)\n\}", text, re.DOTALL)
    assert found
    return found.group(1)


@DIALECTS
@pytest.mark.parametrize("row", ROWS, ids=[r.name for r in ROWS])
def test_every_row_renders_in_every_dtype_and_layout(dialect: Dialect, row):
    for stored in assignments(row):
        for layout in LAYOUTS:
            kernel = render_row(row, dialect, stored, layout)

            assert kernel.text.count("(") == kernel.text.count(")")
            assert re.search(rf"void {kernel.name}\(", kernel.text)


@DIALECTS
def test_every_reduction_renders_in_every_shape(dialect: Dialect):
    for row in REDUCTIONS:
        for x, outs in reduction_dtypes(row):
            names = {render_reduction(row, dialect, x, outs, shape).name for shape in SHAPES}

            assert len(names) == len(SHAPES)


@DIALECTS
def test_every_operation_is_bracketed(dialect: Dialect):
    text = value_of(render_row(TABLE["softsign"], dialect, FLOAT, "dense").text)

    assert re.search(r"return \((\w+) / \(1\.0f \+ fabsf?\(\1\)\)\);", text)


@pytest.mark.parametrize(
    ("dtype", "literal"), [(dtypes.float32, "0.5f"), (dtypes.float64, "0.5"), (dtypes.bfloat16, "0.5f")]
)
def test_constants_take_the_type_that_the_kernel_computes_in(dtype: DType, literal: str):
    text = value_of(render_row(TABLE["gelu"], CUDA, {"f": dtype}, "dense").text)

    assert f"({literal} * maximum_" in text


def test_float32_kernels_never_compute_in_double():
    for row in ROWS:
        stored = dict.fromkeys(row.signature.inputs + row.signature.outputs, dtypes.float32) | {
            "b": dtypes.bool_,
            "i": dtypes.int32,
        }
        text = (
            ""
            if set(row.signature.outputs + row.signature.inputs) <= {"i", "b"}
            else render_row(row, CUDA, stored, "dense").text
        )

        assert "double" not in text
        assert not re.search(r"\d\.\d+(?!\d|f|e)", text), row.name


@DIALECTS
def test_narrow_types_are_converted_without_extensions(dialect: Dialect):
    text = render_row(TABLE["add"], dialect, {"n": dtypes.float16}, "dense").text

    assert "store_f16((v_a + v_b))" in value_of(text)
    assert "#include" not in text
    assert "cl_khr_fp16" not in text


def test_bool_is_a_byte_and_logic_is_not_bitwise():
    text = render_row(TABLE["where_bool"], OPENCL, {"b": dtypes.bool_}, "dense").text

    assert "uchar s_c" in text
    assert "((v_c && v_a) || ((!v_c) && v_b))" in value_of(text)
    assert "(v_a & v_b)" in value_of(render_row(TABLE["bitwise_and"], OPENCL, {"i": dtypes.int32}, "dense").text)


def test_signed_integers_wrap_and_never_divide_in_place():
    assert "add_i32(v_a, v_b)" in value_of(render_row(TABLE["add"], CUDA, {"n": dtypes.int8}, "dense").text)
    assert "floordiv_i64(v_a, v_b)" in value_of(
        render_row(TABLE["floor_divide"], CUDA, {"n": dtypes.int64}, "dense").text
    )


def test_a_subexpression_that_occurs_twice_is_computed_once():
    text = value_of(render_row(TABLE["mish"], CUDA, {"f": dtypes.float32}, "dense").text)

    assert text.count("tanh_f32") == 1


def test_a_scalar_argument_becomes_a_number():
    kernel = render_row(TABLE["multiply"], CUDA, {"n": dtypes.float32}, "dense", host=frozenset("b"))

    assert "p_b" not in kernel.text
    assert kernel.numbers({"b": 2.5}) == (2.5,)


def test_an_index_keeps_its_own_dtype_beside_other_numbers():
    kernel = render_row(TABLE["add_where_equal"], CUDA, {"n": dtypes.float32, "i": dtypes.int64}, "dense")

    assert "const long long v_i" in kernel.text
    assert kernel.dtypes == (dtypes.int64,)


def test_second_gradients_render():
    first = gradient_row(TABLE["tanh"], 0)
    second = gradient_row(first, first.args.index("y"))

    assert "v_gg" in render_row(second, OPENCL, {"f": dtypes.float32}, "general").text


def test_a_fraction_among_integers_is_an_error():
    with pytest.raises(RowError, match="no meaning in int32"):
        render_row(gradient_row(TABLE["maximum"], 0), CUDA, {"f": dtypes.int32}, "dense")


def test_update_launch_does_not_write_the_slots_that_its_threads_read():
    step, slots = render_update(UPDATED["adam"], OPENCL, dict.fromkeys("gps", dtypes.float32))

    assert "p_t[0] =" not in step.text
    assert "p_t[0] = r_t;" in slots.text
    assert slots.name == f"{step.name}_slots"


def test_update_over_a_table_writes_a_slot_once_all_its_blocks_have_read_it():
    (step,) = render_update(UPDATED["adam"], CUDA, dict.fromkeys("gps", dtypes.float32))

    order = [
        "v_t = p_t[0]",
        "__syncthreads();",
        "__threadfence();",
        "atomicAdd(counters + k",
        "__threadfence();",
        "p_t[0] = r_t;",
    ]
    places = [step.text.index(part) for part in order]
    places[4] = step.text.index(order[4], places[3])
    assert places == sorted(places)
    assert step.text.count("p_t[0]") == 2


def test_update_reads_a_slot_once_before_its_loop():
    step, _ = render_update(UPDATED["adam"], OPENCL, dict.fromkeys("gps", dtypes.float32))

    assert step.text.count("p_t[0]") == 1
    assert step.text.index("p_t[0]") < step.text.index("for (")


def test_an_update_without_slots_is_one_kernel():
    assert len(render_update(UPDATED["sgd"], CUDA, dict.fromkeys("gps", dtypes.float32))) == 1


def test_a_slot_may_not_depend_on_arrays_with_elements():
    row = update("bad", "g p t", "lr", "p = p - lr * g", "t = t + g", zero_d="t")

    with pytest.raises(RowError, match="0-d slot 't'"):
        update_parts(row)


def test_argmax_keeps_its_index_an_integer():
    text = render_reduction(REDUCED["argmax"], CUDA, dtypes.float32, (dtypes.int64,), "group").text

    assert "typedef struct { float v; long long i; }" in text
