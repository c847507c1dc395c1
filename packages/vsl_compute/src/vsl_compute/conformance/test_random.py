"""Philox 4x32-10: known answers, the order of words, layouts, moments of what is drawn from it, and dropout's mask."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.dtypes import float32, uint32
from vsl_compute.errors import AttributeValueError, DTypeError
from vsl_compute.random import Generator
from vsl_compute.validation import oracle_updates

COMPOSITES = True  # its tests run with overrides and without
KNOWN = (  # Random123 1.14, kat_vectors: philox4x32 10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
)  # fmt: skip


def draw(subject, shape, **options):
    return subject.value("random", subject.put(np.zeros(1, np.float32)), shape=shape, **options)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_random123_s_known_answers(subject, counter, key, words):
    assert tuple(draw(subject, (4,), key=key, counter=counter).tolist()) == words


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 1023, 4099])
def test_element_i_takes_word_i_whatever_the_shape_and_layout(subject, size):
    key, counter = (7, 3), (0xFFFFFFFE, 1, 9, 0)  # blocks cross the low word's end
    words = oracle_updates.philox_words(size, key, counter)
    assert np.array_equal(draw(subject, (size,), key=key, counter=counter), words)
    for layout in ("transposed", "pitched", "stepped", "flipped"):
        shape = (size // 3, 3)
        out = subject.output(uint32, shape, layout)
        subject.run("random", out.view, kind="bits", shape=shape, key=key, counter=counter, out=out.view)
        assert np.array_equal(out.read(f"random {layout}"), words[: shape[0] * 3].reshape(shape)), layout


def test_uniform_numbers_are_the_words_high_bits(subject):
    """[0, 1) with 24 bits in float32, 53 in float64, 11 in float16, 8 in bfloat16: exact, so masks and initial weights agree everywhere."""
    key, counter = (11, 0), (5, 0, 0, 0)
    words = oracle_updates.philox_words(2000, key, counter).astype(np.uint64)
    for dtype in subject.floating():
        got = draw(subject, (1000,), kind="uniform", dtype=dtype, key=key, counter=counter)
        if dtype.itemsize == 8:
            expected = ((words[0::2] >> np.uint64(5)) * 2.0**26 + (words[1::2] >> np.uint64(6))) * 2.0**-53
        else:
            bits = 24 if dtype.itemsize == 4 else 11 if dtype.name == "float16" else 8
            expected = (words[:1000] >> np.uint64(32 - bits)) * 2.0**-bits
        subject.close(got, expected, dtype, 0, f"uniform {dtype.name}")
        assert got.min() >= 0, dtype.name
        assert got.max() < 1, dtype.name


def test_normal_numbers_are_normal(subject):
    """Box and Muller from the same words, two a number; also mean, variance, and the tail's weight of 100 000."""
    key, counter = (13, 0), (0, 0, 0, 0)
    words = oracle_updates.philox_words(2000, key, counter).astype(np.float64)
    expected = np.sqrt(-2 * np.log((words[0::2] + 1) * 2.0**-32)) * np.cos(2 * np.pi * words[1::2] * 2.0**-32)
    for dtype in subject.floating():
        got = draw(subject, (1000,), kind="normal", dtype=dtype, key=key, counter=counter)
        # near a zero of the cosine its argument's rounding shows: judged at 1
        subject.close(got, expected, dtype, subject.narrowed(16, dtype), f"normal {dtype.name}", 4.0)
    many = draw(subject, (100_000,), kind="normal", dtype="float32", key=key, counter=counter).astype(float)
    assert abs(many.mean()) < 0.015
    assert abs(many.var() - 1) < 0.02
    assert np.mean(np.abs(many) > 1.959964) == pytest.approx(0.05, abs=0.004)


def test_streams_keys_and_draws_differ_and_repeat(subject):
    first = Generator(5)
    a, b = (draw(subject, (64,), key=k, counter=c) for k, c in (first.reserve(64), first.reserve(64)))
    again = Generator(5)
    c = draw(subject, (64,), **dict(zip(("key", "counter"), again.reserve(64), strict=True)))
    other = draw(subject, (64,), **dict(zip(("key", "counter"), Generator(6).reserve(64), strict=True)))
    stream = draw(subject, (64,), **dict(zip(("key", "counter"), Generator(5, stream=1).reserve(64), strict=True)))
    assert np.array_equal(a, c)
    for x in (b, other, stream):
        assert not np.any(a == x)


def test_d10_dropout_keeps_by_its_words_and_scales_exactly(subject):
    """D10: p = 0.3 keeps a word of at least 0.3 * 2**32 and multiplies by 1 / 0.7; p = 1 is zeros, p = 0 the identity."""
    key, counter = (17, 0), (3, 0, 0, 0)
    for dtype in subject.floating():
        x = subject.place(dtype, "transposed", (100, 31), (0.5, 4.0))
        y, keep = subject.value("dropout", x.view, p=0.3, key=key, counter=counter)
        words = oracle_updates.philox_words(3100, key, counter).reshape(100, 31)
        assert np.array_equal(keep, words >= round(0.3 * 2**32)), dtype.name
        assert abs(keep.mean() - 0.7) < 0.03
        subject.close(
            y,
            np.where(keep, x.host.astype(np.longdouble) / np.longdouble(0.7), 0),
            dtype,
            subject.narrowed(2, dtype),
            f"dropout {dtype.name}",
        )
        zeros, _ = subject.value("dropout", x.view, p=1.0, key=key, counter=counter)
        assert not zeros.any()
        same, _ = subject.value("dropout", x.view, p=0.0, key=key, counter=counter)
        assert np.array_equal(same, x.host), dtype.name
    hot = subject.put(np.array([np.inf, np.nan], np.float32))
    assert subject.value("dropout", hot, p=1.0, key=key, counter=counter)[0].tolist() == [0, 0]
    for p in (-0.1, 1.1, np.nan):
        with pytest.raises(AttributeValueError, match="dropout: p="):
            subject.run("dropout", hot, p=p, key=key, counter=counter)


def test_random_integers_other_than_bits_are_refused(subject):
    x = subject.place(float32, "dense", (3,)).view
    with pytest.raises(DTypeError, match="random: uniform numbers are floating"):
        subject.run("random", x, kind="uniform", dtype="int32", key=(0, 0), counter=(0, 0, 0, 0))
    with pytest.raises(AttributeValueError, match="random: kind='gamma'"):
        subject.run("random", x, kind="gamma", key=(0, 0), counter=(0, 0, 0, 0))
