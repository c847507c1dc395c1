"""sin, cos and tan of numbers of any size: whole turns are taken off to every digit, in every kind of kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vsl_compute.conformance.subject import Subject
from vsl_compute.dtypes import DType

# the float32 and the float64 nearest to a multiple of pi / 2, found by continued fractions, and what mpmath makes of them; glibc's
# cos, which is NumPy's, is 8 ULP off there (2.36)
NEAREST = {
    "float32": (16367173 * 2.0**72, {"sin": 1.0, "cos": -1.6147697982476211e-09, "tan": -619283318.9506139}),
    "float64": (6381956970095103 * 2.0**797, {"sin": 1.0, "cos": -4.687165924254628e-19, "tan": -2.133485385753704e18}),
}


def drawn(subject: Subject, dtype: DType) -> np.ndarray:
    """Of every exponent that the dtype has, both signs, small ones between."""
    low, high = {"float16": (-4, 15), "float64": (-20, 1023)}.get(dtype.name, (-20, 127))
    rng = subject.rng
    x = rng.uniform(1, 2, 96) * 2.0 ** rng.integers(low, high, 96) * rng.choice([-1, 1], 96)
    x[::3] = rng.uniform(-100, 100, 32)
    return x


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_whole_turns_are_taken_off_of_numbers_of_any_size(subject, name):
    """In fours, one by one, and with strides; beside them infinities and NaN give NaN."""
    exact = np.vectorize(getattr(math, name), otypes=[np.float64])
    for dtype in subject.dtypes("f"):
        x = subject.put(drawn(subject, dtype), dtype)
        for view in (x, x.slice(slice(0, 95)), x.slice(slice(None, None, 2)), x.reshape((8, 12)).permute((1, 0))):
            got = subject.value(name, view)
            expected = exact(view.to_host().astype(np.float64))
            what = f"{name} {dtype.name} of numbers of any size"
            subject.close(got, expected, dtype, subject.narrowed(4, dtype) + 0.5, what)
        if dtype.name in NEAREST:
            number, exactly = NEAREST[dtype.name]
            got = subject.value(name, subject.put(np.array([number, -0.5]), dtype))[:1]
            what = f"{name} {dtype.name} beside a multiple of half a pi"
            subject.close(got, np.array([exactly[name]]), dtype, 16 if subject.on_cpu else 4, what)
        wrong = subject.put(np.array([np.inf, 1.0, -np.inf, np.nan]), dtype)
        assert np.isnan(subject.value(name, wrong)).tolist() == [True, False, True, True], f"{name} {dtype.name}"
