"""Exchange with NumPy and DLPack: read-only out, copied in."""

from __future__ import annotations

import numpy as np
import pytest

import vtl_core as vtl


@pytest.mark.cpu_only("elsewhere it is a copy")
@pytest.mark.parametrize(
    "lay",
    [lambda x: x, lambda x: x.T, lambda x: x[::-1, 1::2], lambda x: x[0, 0], lambda x: x[:0]],
    ids=["dense", "T", "steps", "0-d", "empty"],
)
def test_numpy_is_a_read_only_view_of_the_memory(lay):
    x = lay(vtl.tensor(np.arange(12.0).reshape(3, 4)))
    array = x.numpy()

    assert array.shape == x.shape
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 1
    x.add_(1.0)
    np.testing.assert_array_equal(array, x.to_host())


def test_to_host_is_a_copy_to_write_in():
    x = vtl.ones(2)
    x.to_host()[0] = 5

    assert x.tolist() == [1, 1]


def test_bfloat16_comes_as_float32():
    array = vtl.tensor([1.5, 2.0], dtype=vtl.bfloat16).numpy()

    assert array.dtype == np.float32
    assert array.tolist() == [1.5, 2.0]
    assert not array.flags.writeable


def test_one_bfloat16_is_read_as_any_other_number():
    """A loss in bfloat16 is such a tensor without axes."""
    x = vtl.tensor([1.0, 0.5], dtype=vtl.bfloat16).sum()

    assert isinstance(x.numpy(), np.ndarray)
    assert isinstance(x.to_host(), np.ndarray)
    assert x.item() == float(x) == x.tolist() == 1.5
    assert "1.5" in repr(x)


def test_an_array_outlives_its_tensor():
    array = vtl.arange(1000).numpy()
    for _ in range(10):
        vtl.zeros(1000, dtype=vtl.int64)

    np.testing.assert_array_equal(array, np.arange(1000))


def test_numpys_functions_take_tensors():
    x = vtl.tensor([1.0, 4.0], dtype=vtl.float64)

    np.testing.assert_allclose(np.sqrt(x), [1, 2])
    assert np.asarray(x).flags.writeable is False
    copied = np.array(x)
    copied[0] = 9
    assert x.tolist() == [1, 4]
    assert np.asarray(x, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="without a copy"):
        np.array(x, np.float32, copy=False)


flagged = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy 2.0 cannot say read-only in DLPack"
)


@flagged
@pytest.mark.cpu_only("DLPack lends the host's memory")
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"])
def test_dlpack_there_and_back(dtype):
    x = vtl.tensor([[0, 1, 2]], dtype=dtype).T
    got = np.from_dlpack(x)

    np.testing.assert_array_equal(got, x.numpy())
    assert not got.flags.writeable
    back = vtl.from_dlpack(got)
    assert back.dtype is x.dtype
    np.testing.assert_array_equal(back.numpy(), x.numpy())


@flagged
@pytest.mark.cpu_only("DLPack lends the host's memory")
def test_dlpack_lends_nothing_for_writing():
    x = vtl.ones(2)

    with pytest.raises(BufferError, match="ask for copy=True"):
        x.__dlpack__()
    with pytest.raises(BufferError, match="ask for copy=True"):
        x.__dlpack__(max_version=(0, 8))
    writable = np.from_dlpack(x, copy=True)
    writable[0] = 5
    assert x.tolist() == [1, 1]


@pytest.mark.cpu_only("DLPack lends the host's memory")
def test_dlpack_refuses_what_it_cannot_say():
    with pytest.raises(BufferError, match="cast it"):
        vtl.ones(2, dtype=vtl.bfloat16).__dlpack__(max_version=(1, 0))
    with pytest.raises(BufferError, match="stream"):
        vtl.ones(2).__dlpack__(stream=1, max_version=(1, 0))
    with pytest.raises(BufferError, match="to the CPU only"):
        vtl.ones(2).__dlpack__(dl_device=(2, 0), max_version=(1, 0))
    with pytest.raises(BufferError, match="copy=False is refused"):
        vtl.from_dlpack(np.ones(2), copy=False)
    with pytest.raises(BufferError, match="list offers nothing"):
        vtl.from_dlpack([1.0])
    assert vtl.ones(2).__dlpack_device__() == (1, 0)


def test_what_dlpack_brought_is_memory_of_its_own():
    array = np.ones(2)
    x = vtl.from_dlpack(array)
    array[0] = 5

    assert x.tolist() == [1, 1]
