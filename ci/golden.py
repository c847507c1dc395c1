"""Make validation/golden.npz: functions at random float64 points to 40 digits by mpmath, kept as a sum of two float64.

`python ci/golden.py` writes the file; `--check` compares instead. Points come from a fixed seed, spread over the
range where a float32 result is neither 0 nor infinite, with some near 0 and at the ends of the domain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from mpmath import mp

TARGET = Path(__file__).resolve().parents[1] / "packages/vsl_compute/src/vsl_compute/validation/golden.npz"
COUNT = 48

Point = Any  # mpmath has no type stubs


def _softplus(x: Point) -> Point:
    return mpmath.log1p(mpmath.exp(x))


FUNCTIONS: dict[str, tuple[Callable[..., Point], float, float]] = {
    "sqrt": (mpmath.sqrt, 0, 1e4),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), 1e-4, 1e4),
    "exp": (mpmath.exp, -80, 80),
    "exp2": (lambda x: mpmath.mpf(2) ** x, -120, 120),
    "expm1": (mpmath.expm1, -20, 80),
    "log": (mpmath.log, 1e-6, 1e6),
    "log1p": (mpmath.log1p, -0.999, 1e6),
    "log2": (lambda x: mpmath.log(x, 2), 1e-6, 1e6),
    "log10": (mpmath.log10, 1e-6, 1e6),
    "sin": (mpmath.sin, -30, 30),
    "cos": (mpmath.cos, -30, 30),
    "tan": (mpmath.tan, -1.5, 1.5),
    "asin": (mpmath.asin, -1, 1),
    "acos": (mpmath.acos, -1, 1),
    "atan": (mpmath.atan, -100, 100),
    "sinh": (mpmath.sinh, -80, 80),
    "cosh": (mpmath.cosh, -80, 80),
    "tanh": (mpmath.tanh, -12, 12),
    "asinh": (mpmath.asinh, -1e4, 1e4),
    "acosh": (mpmath.acosh, 1, 1e4),
    "atanh": (mpmath.atanh, -0.999, 0.999),
    "erf": (mpmath.erf, -6, 6),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), -80, 80),
    "logsigmoid": (lambda x: -_softplus(-x), -80, 80),
    "softplus": (_softplus, -80, 80),
    "silu": (lambda x: x / (1 + mpmath.exp(-x)), -80, 80),
    "mish": (lambda x: x * mpmath.tanh(_softplus(x)), -40, 40),
    "gelu": (lambda x: x * mpmath.ncdf(x), -6, 6),
    "gelu_tanh": (
        lambda x: x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))),
        -4,
        6,
    ),
}


def points(low: float, high: float, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """A third over the whole range, a third over its middle, a third of many magnitudes near 0 or its lower end.

    All are float32 numbers, so that float32 and float64 kernels are asked the same question.
    """
    wide = rng.uniform(low, high, COUNT // 3)
    middle = rng.uniform(max(low, -3), min(high, 3), COUNT // 3)
    small = 10 ** rng.uniform(-6, 0, COUNT // 3) * rng.choice([-1, 1], COUNT // 3)
    near = np.clip(np.where(low < 0, small, low + np.abs(small)), low, high)
    narrowed = np.unique(np.concatenate([wide, middle, near]).astype(np.float32)).astype(np.float64)
    return narrowed[(narrowed >= low) & (narrowed <= high)]


def golden() -> dict[str, np.ndarray[Any, Any]]:
    """The whole file: for each function its points, values rounded to float64, and what that rounding lost."""
    mp.dps = 50
    arrays = {}
    for name, (function, low, high) in FUNCTIONS.items():
        rng = np.random.default_rng([2026, *name.encode()])
        x = points(low, high, rng)
        exact = [function(mpmath.mpf(float(v))) for v in x]
        arrays[f"{name}/x"] = x
        arrays[f"{name}/y"] = np.asarray([float(v) for v in exact])
        arrays[f"{name}/rest"] = np.asarray([float(v - mpmath.mpf(float(v))) for v in exact])
    return arrays


def main() -> int:
    """Write the file, or say whether it is what this script makes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    arguments = parser.parse_args()
    made = golden()
    if not arguments.check:
        np.savez_compressed(TARGET, allow_pickle=False, **made)
        print(f"{TARGET.name}: {len(FUNCTIONS)} functions, {TARGET.stat().st_size} bytes")
        return 0
    with np.load(TARGET, allow_pickle=False) as found:
        same = set(found.files) == set(made) and all(np.array_equal(found[key], made[key]) for key in made)
    print("golden.npz is what ci/golden.py makes" if same else "golden.npz is stale: run python ci/golden.py")
    return not same


if __name__ == "__main__":
    sys.exit(main())
