"""Matrix units: what of a device's table is used, and what must be there besides. No device is needed."""

from __future__ import annotations

import pytest

from vsl_compute.backends.vulkan import matrices
from vsl_compute.backends.vulkan.api import load
from vsl_compute.backends.vulkan.matrices import ALSO, BFLOAT16, MATRICES
from vsl_compute.errors import UnavailableError

HALF, BRAIN, FLOAT, EIGHT = 0, 1000141000, 1, 3
ROW = [16, 16, 16, HALF, HALF, FLOAT, FLOAT, 0, 3]


def changed(**fields):
    names = ("m", "n", "k", "a", "b", "c", "result", "saturating", "scope")
    return [fields.get(name, value) for name, value in zip(names, ROW, strict=True)]


def test_a_row_of_sixteens_with_float32_sums_is_used():
    both = frozenset({MATRICES, BFLOAT16})
    assert matrices.elements_of([ROW], both) == {"float16"}
    assert matrices.elements_of([ROW, changed(a=BRAIN, b=BRAIN)], both) == {"float16", "bfloat16"}
    assert matrices.elements_of([changed(a=BRAIN, b=BRAIN)], frozenset({MATRICES})) == set()


@pytest.mark.parametrize(
    "other",
    [{"n": 8}, {"k": 32}, {"b": BRAIN}, {"c": HALF}, {"result": HALF}, {"saturating": 1}, {"scope": 2}, {"a": EIGHT, "b": EIGHT}],
    ids=str,
)  # fmt: skip
def test_any_other_row_is_not(other):
    assert matrices.elements_of([changed(**other)], frozenset({MATRICES, BFLOAT16})) == set()


def test_extensions_are_enabled_only_with_all_that_the_modules_need():
    structs = {MATRICES: [0] * 4 + [1, 0], BFLOAT16: [0] * 4 + [1, 0, 1, 0]}
    assert matrices.usable(structs, ALSO, (32, 32)) == {MATRICES, BFLOAT16}
    assert matrices.usable({**structs, BFLOAT16: [0] * 4 + [1, 0, 0, 0]}, ALSO, (32, 32)) == {MATRICES}
    assert matrices.usable({**structs, MATRICES: [0] * 6}, ALSO, (32, 32)) == set()
    assert matrices.usable(structs, ALSO[1:], (32, 32)) == set()
    assert matrices.usable(structs, ALSO, (32, 64)) == set()
    assert matrices.usable({}, ALSO, (32, 32)) == set()


def test_feature_structs_are_chained_in_order():
    try:
        vulkan = load().vk
    except UnavailableError as error:
        pytest.skip(str(error))

    class Holder:
        ffi = vulkan.ffi

    made = matrices.feature_structs(Holder, frozenset({MATRICES, BFLOAT16}), wanted=True)
    last = vulkan.ffi.new("VkPhysicalDeviceVulkan12Features *")
    matrices.chain(Holder, made, last)
    first = vulkan.ffi.cast("uint32_t *", last.pNext)
    assert (first[0], first[4], first[5]) == (1000506000, 1, 0)
    second = vulkan.ffi.cast("uint32_t *", first[2] | first[3] << 32)
    assert (second[0], second[2], second[3], list(second[4:7])) == (1000141000, 0, 0, [1, 0, 1])
