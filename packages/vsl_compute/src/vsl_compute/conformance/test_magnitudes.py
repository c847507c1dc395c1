"""Rows of numbers of any size: quotients that no float holds, powers near the largest number."""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.conformance.placement import host
from vsl_compute.conformance.test_rows import DIVISIONS, supported
from vsl_compute.rows.elementwise import TABLE
from vsl_compute.validation import oracle
from vsl_compute.validation.tolerance import FORMATS


@pytest.mark.parametrize("name", DIVISIONS)
def test_division_is_right_however_large_the_quotient(subject, name):
    """1e20 % 3 is 2 in float32, whose 1e20 is a whole number: digits of the quotient that no float holds do not matter."""
    for dtype in subject.dtypes("f"):
        if not supported(subject, TABLE[name], {"n": dtype}):
            continue
        form = FORMATS[dtype.name]
        exponents = [subject.rng.integers(form.lowest, form.highest, 400) for _ in range(2)]
        hosts = [host(np.ldexp(subject.rng.uniform(1, 2, 400), e), dtype) for e in exponents]
        hosts = [h * subject.rng.choice([-1, 1], 400).astype(h.dtype) for h in hosts]
        wide = np.float64 if dtype.itemsize == 8 else np.float32  # what it is computed in, where all of this is exact
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(*(h.astype(wide) for h in hosts))
        got = subject.value(name, *(subject.put(h, dtype) for h in hosts))
        ulp = 0.5 if name == "remainder" else subject.ulp(TABLE[name], dtype)
        subject.close(got, expected.astype(np.longdouble), dtype, ulp, f"{name} {dtype.name} of any size")


@pytest.mark.parametrize("base", [10.0, -2.5, 1.0001, 1e-30])
def test_powers_near_the_largest_number_keep_their_digits(subject, base):
    """10 ** 30 and the like: an exponential of a rounded logarithm would be a hundred units off."""
    for dtype in subject.dtypes("f"):
        if not supported(subject, TABLE["power"], {"f": dtype}):
            continue
        x = subject.put(np.full(64, base), dtype)
        if not (held := float(x.to_host()[0])) or abs(held) == 1:
            continue
        most = FORMATS[dtype.name].highest * np.log(2) / abs(np.log(abs(held)))
        b = np.trunc(np.linspace(-most, most, 64)) if base < 0 else np.linspace(-most, most, 64)
        y = subject.put(b, dtype)
        expected = oracle.value("power", [x.to_host(), y.to_host()], dtype=dtype)
        subject.close(subject.value("power", x, y), expected, dtype, subject.ulp(TABLE["power"], dtype), f"{base} ** b")
