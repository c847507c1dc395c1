"""The float64 series of SPIR-V modules, run on the CPU one rounding an operation, against mpmath at 40 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import simulated_spirv  # conftest.py has brought it

from vsl_compute import dtypes
from vsl_compute.rows.elementwise import TABLE
from vsl_compute.rows.spirv_double import FUNCTIONS

EXACT = {"absolute": abs, "power": mpmath.power, "exp2": lambda x: mpmath.power(2, x), "erf": mpmath.erf,
         "log2": lambda x: mpmath.log(x, 2), "log10": mpmath.log10}  # fmt: skip
UNARY = [name for name in (*FUNCTIONS, "erf") if name in TABLE and len(TABLE[name].args) == 1]


def computed(name: str, **inputs: np.ndarray) -> np.ndarray:
    return simulated_spirv.computed(TABLE[name], dtypes.float64, **inputs)


def worst_ulp(name: str, *args: np.ndarray) -> float:
    """The largest error, counted in units of the last place of the exact value."""
    got = computed(name, **dict(zip(TABLE[name].args, args, strict=True)))
    function = EXACT.get(name) or getattr(mpmath, name)
    worst = 0.0
    with mpmath.workdps(40):
        for i, numbers in enumerate(zip(*args, strict=True)):
            exact = function(*(mpmath.mpf(float(x)) for x in numbers))
            if abs(exact) < 1e-300:
                continue
            unit = float(np.spacing(abs(float(exact))))
            worst = max(worst, float(abs(mpmath.mpf(float(got[i])) - exact) / unit))
    return worst


@pytest.mark.parametrize("name", UNARY)
def test_series_are_within_4_ulp(name: str):
    """Over the row's domain, and logarithmically close to zero, where a series that cancels would show."""
    rng = np.random.default_rng(3)
    low, high = TABLE[name].domain
    tiny = 10.0 ** rng.uniform(-30, 0, 300) * rng.choice([-1, 1], 300)
    x = np.concatenate([rng.uniform(low, high, 1500), tiny[(tiny > low) & (tiny < high)]])
    assert worst_ulp(name, x) <= 4


RANGES = [("exp", -708, 709), ("expm1", -50, 709), ("log", 1e-300, 1e300), ("log1p", -0.999, 1e300), ("sin", -1e6, 1e6),
          ("cos", -1e6, 1e6), ("sinh", -709, 709), ("cosh", -709, 709), ("asinh", -1e200, 1e200), ("acosh", 1, 1e200),
          ("tanh", -50, 50), ("exp2", -1022, 1023), ("atan", -1e9, 1e9)]  # fmt: skip


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_series_hold_over_the_whole_range(name: str, low: float, high: float):
    assert worst_ulp(name, np.random.default_rng(4).uniform(low, high, 800)) <= (8 if name in ("sin", "cos") else 4)


def test_power_is_within_4_ulp_where_the_logarithm_is_long():
    rng = np.random.default_rng(5)
    assert worst_ulp("power", rng.uniform(0.05, 4, 1000), rng.uniform(-4, 4, 1000)) <= 4
    assert worst_ulp("power", 10.0 ** rng.uniform(-30, 30, 600), rng.uniform(-9, 9, 600)) <= 4
    assert worst_ulp("power", 1 + rng.uniform(-1e-3, 1e-3, 400), rng.uniform(-1e5, 1e5, 400)) <= 4


def test_edges_are_those_of_numpy():
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, -1e-310, 800.0, -800.0])
    names = {
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
    }
    for name in UNARY:
        if name != "erf":
            with np.errstate(all="ignore"):
                exact = getattr(np, names.get(name, name))(edges)
            np.testing.assert_allclose(computed(name, x=edges), exact, rtol=1e-14, atol=5e-324, err_msg=name)


def test_power_has_the_special_cases_of_numpy():
    bases = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -8.0, np.inf, -np.inf, np.nan, 5e-324, 1e308])
    exponents = np.array([0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, np.inf, -np.inf, np.nan, 1e30, -1e300])
    a, b = (m.ravel() for m in np.meshgrid(bases, exponents))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(computed("power", a=a, b=b), np.power(a, b), rtol=1e-14, atol=5e-324)
