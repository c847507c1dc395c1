"""Tensors from data, rules and generators."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import vtl_core as vtl

RULED = {
    "zeros": (lambda: vtl.zeros(2, 3), np.zeros((2, 3), np.float32)),
    "zeros of a tuple": (lambda: vtl.zeros((2, 3)), np.zeros((2, 3), np.float32)),
    "zeros without axes": (lambda: vtl.zeros(()), np.zeros((), np.float32)),
    "ones": (lambda: vtl.ones([2], dtype=vtl.int8), np.ones(2, np.int8)),
    "full": (lambda: vtl.full((2,), 7), np.full(2, 7)),
    "full of floats": (lambda: vtl.full(2, 0.5), np.full(2, 0.5, np.float32)),
    "full of bools": (lambda: vtl.full((1,), True), np.full(1, True)),
    "arange": (lambda: vtl.arange(5), np.arange(5)),
    "arange by steps": (lambda: vtl.arange(5, 0, -2), np.arange(5, 0, -2)),
    "arange of floats": (lambda: vtl.arange(0, 1, 0.25), np.arange(0, 1, 0.25, np.float32)),
    "linspace": (lambda: vtl.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype=np.float32)),
    "linspace without its end": (
        lambda: vtl.linspace(0, 1, 4, endpoint=False),
        np.linspace(0, 1, 4, False, dtype=np.float32),
    ),
    "eye": (lambda: vtl.eye(2, 3, k=1), np.eye(2, 3, 1, np.float32)),
    "zeros_like": (lambda: vtl.zeros_like(vtl.ones(2, dtype=vtl.int32)), np.zeros(2, np.int32)),
    "ones_like": (lambda: vtl.ones_like(vtl.zeros(2), dtype=vtl.float64), np.ones(2)),
    "full_like": (lambda: vtl.full_like(vtl.zeros(2), 3), np.full(2, 3, np.float32)),
}
DATA = {
    "ints": ([1, 2], "int64"), "floats": ([1.0, 2], "float32"), "bools": ([True, False], "bool"), "a number": (1.5, "float32"),
    "nothing": ([], "float32"), "an array": (np.ones((2, 3)), "float64"), "float16": (np.ones(2, np.float16), "float16"),
    "a strided array": (np.arange(6).reshape(2, 3).T, "int64"), "big-endian": (np.arange(3, dtype=">f4"), "float32"),
    "a NumPy number": (np.int32(3), "int32"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULED)
def test_a_rule_gives_numpys_numbers_and_dtype(name):
    make, want = RULED[name]
    got = make()

    assert got.dtype.name == want.dtype.name
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("name", DATA)
def test_data_keep_their_numbers_and_have_the_default_dtype(name):
    data, dtype = DATA[name]
    got = vtl.tensor(data)

    assert got.dtype.name == dtype
    np.testing.assert_array_equal(got.numpy(), data)
    assert vtl.asarray(data).dtype.name == dtype


@pytest.mark.parametrize(
    "bad", ["text", [[1, 2], [3]], [object()], None, 1j], ids=["text", "ragged", "object", "None", "complex"]
)
def test_what_is_no_array_of_numbers_is_a_type_error(bad):
    with pytest.raises(TypeError):
        vtl.tensor(bad)


def test_tensors_are_copied_by_tensor_and_taken_by_asarray():
    x = vtl.ones(2, requires_grad=True)

    assert vtl.asarray(x) is x
    assert vtl.asarray(x, copy=True) is not x
    assert vtl.asarray(x, dtype=vtl.float64).dtype is vtl.float64
    made = vtl.tensor(x)
    made.zero_()
    assert x.tolist() == [1, 1]
    assert not made.requires_grad
    assert vtl.tensor([x, x * 2]).tolist() == [[1, 1], [2, 2]]
    for data, dtype in (([1.0], None), (x, vtl.float64)):
        with pytest.raises(vtl.AttributeValueError, match="copy=False"):
            vtl.asarray(data, dtype=dtype, copy=False)
    assert vtl.asarray(x, copy=False) is x
    assert vtl.empty_like(x, dtype=vtl.int8).dtype is vtl.int8


def test_every_maker_takes_requires_grad_and_device():
    for make in (vtl.zeros, vtl.ones, vtl.rand, vtl.randn, vtl.empty):
        assert make(2, requires_grad=True, device="cpu").requires_grad
    with pytest.raises(vtl.UnavailableError):
        vtl.zeros(2, device="vulkan:99")


@pytest.mark.parametrize(
    "call",
    [
        lambda: vtl.arange(0, 5, 0),
        lambda: vtl.linspace(0, 1, -1),
        lambda: vtl.zeros(-1),
        lambda: vtl.rand(2, -1),
        lambda: vtl.randint(3, 3),
        lambda: vtl.manual_seed(-1),
    ],
)
def test_a_number_that_means_nothing_is_a_value_error(call):
    with pytest.raises(ValueError, match=r"\S"):
        call()


def test_one_seed_gives_one_sequence():
    def draws():
        return [vtl.rand(3), vtl.randn(2, 2), vtl.randint(10, size=5), vtl.randperm(6), vtl.rand(2, dtype=vtl.float64)]

    vtl.manual_seed(5)
    first = draws()
    vtl.manual_seed(5)
    again, other = draws(), draws()

    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert a.tolist() != c.tolist()


def test_a_generator_of_ones_own_leaves_the_default_one_alone():
    vtl.manual_seed(1)
    want = vtl.rand(4).tolist()
    vtl.manual_seed(1)
    vtl.rand(4, generator=vtl.Generator(9))

    assert vtl.rand(4).tolist() == want


def test_random_numbers_have_the_moments_they_should():
    generator = vtl.Generator(3)
    u, n = vtl.rand(20_000, generator=generator, dtype=vtl.float64), vtl.randn(20_000, generator=generator)
    i = vtl.randint(-2, 3, 20_000, generator=generator)

    assert abs(u.mean().item() - 0.5) < 0.01
    assert u.min().item() >= 0
    assert u.max().item() < 1
    assert abs(n.mean().item()) < 0.03
    assert abs(n.std().item() - 1) < 0.03
    assert sorted(set(i.tolist())) == [-2, -1, 0, 1, 2]
    assert np.ptp(np.bincount(i.numpy() + 2)) < 500


def test_a_permutation_has_every_integer_once():
    assert sorted(vtl.randperm(100).tolist()) == list(range(100))
    assert vtl.randperm(0).shape == (0,)


def test_a_context_makes_leaves_on_its_device():
    context = vtl.Context(device="cpu")
    x = context.variable([1.0, 2.0])

    assert x.requires_grad
    assert x.is_leaf
    assert x.device == context.device == "cpu:0"
    assert repr(context) == "Context(device='cpu:0')"
    assert not context.variable([1, 2], requires_grad=False).requires_grad
    assert vtl.default_context() is vtl.default_context()
    with pytest.raises(vtl.AttributeValueError, match="placement"):
        vtl.Context(placement="cpu")
    with pytest.raises(vtl.UnavailableError):
        vtl.Context(device="opencl:99")


def test_sums_of_what_a_context_made_have_gradients():
    context = vtl.Context()
    w = context.variable(np.ones((2, 2)))
    (w * 3).sum().backward()

    assert w.grad.tolist() == [[3, 3], [3, 3]]


def test_numbers_that_do_not_fit_are_refused_and_not_wrapped():
    """A12: by whichever function they come."""
    for make in (
        lambda: vtl.tensor([300], dtype=vtl.int8),
        lambda: vtl.arange(300, dtype=vtl.uint8),
        lambda: vtl.randint(0, 300, (5,), dtype=vtl.uint8),
        lambda: vtl.randint(2**63 - 1, 2**63 + 2, (3,)),
        lambda: vtl.zeros(2, dtype=vtl.int8).__setitem__(slice(None), [300, 6]),
    ):
        with pytest.raises(OverflowError, match="does not fit"):
            make()
    assert vtl.randint(250, 256, (5,), dtype=vtl.uint8).dtype is vtl.uint8
    assert vtl.arange(256, dtype=vtl.uint8)[255].item() == 255


def test_sizes_that_no_memory_has_are_told_so():
    """G03: more than an address can count is out of memory too, not NumPy's ValueError."""
    for shape in ((2**62,), (2**70,), (2**40, 2**40)):
        with pytest.raises(vtl.OutOfMemoryError, match="asked for"):
            vtl.zeros(shape)
    with pytest.raises(vtl.AttributeValueError, match="randperm"):
        vtl.randperm(-1)


@pytest.mark.parametrize("dtype", [vtl.float16, vtl.bfloat16])
def test_short_uniform_numbers_stay_below_one(dtype):
    """D10: 24 bits rounded to 11 or 8 would reach 1."""
    numbers = vtl.rand(200_000, dtype=dtype, generator=vtl.Generator(0)).numpy()
    assert 0 == numbers.min() < numbers.max() == 1 - (2.0**-11 if dtype is vtl.float16 else 2.0**-8)
    assert abs(numbers.astype(np.float64).mean() - 0.5) < 0.01


def test_a_generator_takes_any_int_and_nothing_else():
    """NumPy's ints are as good as Python's; half a seed is none."""
    for seed in (np.int32(3), np.uint8(7), np.uint32(2**31), np.int64(2**31)):
        drawn = vtl.rand(3, generator=vtl.Generator(seed)).tolist()
        assert drawn == vtl.rand(3, generator=vtl.Generator(int(seed))).tolist()
    for seed in (1.5, "1", None, -1, 2**32):
        with pytest.raises(vtl.AttributeValueError, match="seed="):
            vtl.Generator(seed)


def test_a_generator_is_copied_and_pickled_where_it_stands():
    """Copies go on alike and apart; what is no state is refused and changes nothing."""
    generator = vtl.Generator(5)
    vtl.rand(10, generator=generator)
    copies = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
    expected = vtl.rand(3, generator=generator).tolist()
    assert [vtl.rand(3, generator=g).tolist() for g in copies] == [expected] * 2
    before = generator.state_dict()
    for state in ({"seed": 1}, {**before, "offset": -4}, {**before, "seed": 0.5}):
        with pytest.raises(vtl.AttributeValueError, match="Generator: "):
            generator.load_state_dict(state)
    assert generator.state_dict() == before
