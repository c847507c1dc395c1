"""The functions a row may call: arity, what NumPy calls, and how each is derived or defined in the grammar itself.

A function has either a NumPy callable or a `definition` over x (or a, b) in the row grammar, which is then
what every dialect without a function of that name uses too. `derivative` gives one expression an argument, in
terms of the arguments and the value y.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TWO_OVER_ROOT_PI = 1.1283791670955126
LN2 = 0.6931471805599453
LN10 = 2.302585092994046


@dataclass(frozen=True)
class Function:
    """One function of the grammar; `kind` is 'f' (floating only) or 'n' (any number)."""

    name: str
    args: tuple[str, ...]
    kind: str
    numpy: Callable[..., Any] | None
    derivative: tuple[str | None, ...]
    definition: str | None = None
    boolean: bool = False  # the value is a truth value


def _f(
    name: str,
    numpy: Callable[..., Any] | None,
    *derivative: str | None,
    args: str = "x",
    kind: str = "f",
    definition: str | None = None,
    boolean: bool = False,
) -> Function:
    return Function(name, tuple(args.split()), kind, numpy, derivative, definition, boolean)


# erf on |x| < 1: x * P(x^2); beyond, 1 - exp(-x^2) * Q: fdlibm s_erf.c, Sun Microsystems 1993, whose stated error is below 1 ULP.
_ERF_SMALL = (
    "x + x * ((((-2.37630166566501626084e-05 * x2 - 5.77027029648944159157e-03) * x2 - 2.84817495755985104766e-02) * x2"
    " - 3.25042107247001499370e-01) * x2 + 1.28379167095512558561e-01)"
    " / (((((-3.96022827877536812320e-06 * x2 + 1.32494738004321644526e-04) * x2 + 5.08130628187576562776e-03) * x2"
    " + 6.50222499887672944485e-02) * x2 + 3.97917223959155352819e-01) * x2 + 1)"
).replace("x2", "(x * x)")
_S = "(abs(x) - 1)"
_ERF_MIDDLE = (
    f"8.45062911510467529297e-01 + ((((((-2.16637559486879084300e-03 * {_S} + 3.54783043256182359371e-02) * {_S}"
    f" - 1.10894694282396677476e-01) * {_S} + 3.18346619901161753674e-01) * {_S} - 3.72207876035701323847e-01) * {_S}"
    f" + 4.14856118683748331666e-01) * {_S} - 2.36211856075265944077e-03)"
    f" / ((((((1.19844998467991074170e-02 * {_S} + 1.36370839120290507362e-02) * {_S} + 1.26171219808761642112e-01) * {_S}"
    f" + 7.18286544141962662868e-02) * {_S} + 5.40397917702171048937e-01) * {_S} + 1.06420880400844228286e-01) * {_S} + 1)"
)
_R = "(1 / (x * x))"
_ERF_LARGE = (
    f"1 - exp(-(x * x) - 0.5625 + (((((((-9.81432934416914548592 * {_R} - 8.12874355063065934246e+01) * {_R} - 1.84605092906711035994e+02)"
    f" * {_R} - 1.62396669462573470355e+02) * {_R} - 6.23753324503260060396e+01) * {_R} - 1.05586262253232909814e+01) * {_R}"
    f" - 6.93858572707181764372e-01) * {_R} - 9.86494403484714822705e-03)"
    f" / ((((((((-6.04244152148580987438e-02 * {_R} + 6.57024977031928170135) * {_R} + 1.08635005541779435134e+02) * {_R}"
    f" + 4.29008140027567833386e+02) * {_R} + 6.45387271733267880336e+02) * {_R} + 4.34565877475229228821e+02) * {_R}"
    f" + 1.37657754143519042600e+02) * {_R} + 1.96512716674392571292e+01) * {_R} + 1)) / abs(x)"
)
ERF = (
    f"where(abs(x) < 0.84375, {_ERF_SMALL}, copysign(where(abs(x) < 1.25, {_ERF_MIDDLE},"
    f" where(abs(x) < 2.857142857142857, {_ERF_LARGE}, where(abs(x) < 6, 1 - erfc_tail(abs(x)), where(x != x, x, 1)))), x))"
)
# erfc on [1/0.35, 28): the second rational of the same source; below 1/0.35 it is 1 - erf, see `erfc`.
ERFC_TAIL = (
    f"exp(-(x * x) - 0.5625 + ((((((-4.83519191608651397019e+02 * {_R} - 1.02509513161107724954e+03) * {_R} - 6.37566443368389627722e+02)"
    f" * {_R} - 1.60636384855821916062e+02) * {_R} - 1.77579549177547519889e+01) * {_R} - 7.99283237680523006574e-01) * {_R}"
    f" - 9.86494292470009928597e-03)"
    f" / (((((((-2.24409524465858183362e+01 * {_R} + 4.74528541206955367215e+02) * {_R} + 2.55305040643316442583e+03) * {_R}"
    f" + 3.19985821950859553908e+03) * {_R} + 1.53672958608443695994e+03) * {_R} + 3.25792512996573918826e+02) * {_R}"
    f" + 3.03380607434824582924e+01) * {_R} + 1)) / x"
)

FUNCTIONS = {
    f.name: f
    for f in (
        _f("abs", np.abs, "sign(x)", kind="n"),
        _f("sign", np.sign, None, kind="n"),
        _f("sqrt", np.sqrt, "0.5 / y"),
        _f("exp", np.exp, "y"),
        _f("exp2", np.exp2, f"{LN2} * y"),
        _f("expm1", np.expm1, "y + 1"),
        _f("log", np.log, "1 / x"),
        _f("log1p", np.log1p, "1 / (1 + x)"),
        _f("log2", np.log2, f"1 / ({LN2} * x)"),
        _f("log10", np.log10, f"1 / ({LN10} * x)"),
        _f("sin", np.sin, "cos(x)"),
        _f("cos", np.cos, "-sin(x)"),
        _f("tan", np.tan, "1 + y * y"),
        _f("asin", np.arcsin, "1 / sqrt((1 - x) * (1 + x))"),
        _f("acos", np.arccos, "-1 / sqrt((1 - x) * (1 + x))"),
        _f("atan", np.arctan, "1 / (1 + x * x)"),
        _f("sinh", np.sinh, "cosh(x)"),
        _f("cosh", np.cosh, "sinh(x)"),
        _f("tanh", np.tanh, "1 - y * y"),
        _f("asinh", np.arcsinh, "1 / hypot(x, 1)"),
        _f("acosh", np.arccosh, "1 / (sqrt(x - 1) * sqrt(x + 1))"),
        _f("atanh", np.arctanh, "1 / ((1 - x) * (1 + x))"),
        _f("erf", None, f"{TWO_OVER_ROOT_PI} * exp(-(x * x))", definition=ERF),
        _f("erfc_tail", None, f"-{TWO_OVER_ROOT_PI} * exp(-(x * x))", definition=ERFC_TAIL),
        _f("floor", np.floor, None),
        _f("ceil", np.ceil, None),
        _f("rint", np.rint, None),
        _f("trunc", np.trunc, None),
        _f("isnan", np.isnan, None, kind="n", boolean=True),
        _f("isinf", np.isinf, None, kind="n", boolean=True),
        _f(
            "power",
            np.power,
            "where(b == 0, 0, b * power(a, b - 1))",
            "where((a == 0) & (b >= 0), 0, y * log(a))",
            args="a b",
        ),
        _f("atan2", np.arctan2, "b / hypot(a, b) / hypot(a, b)", "-(a / hypot(a, b) / hypot(a, b))", args="a b"),
        _f("hypot", np.hypot, "a / y", "b / y", args="a b"),
        _f("copysign", np.copysign, "sign(a) * copysign(1, b)", None, args="a b"),
        _f(
            "maximum",
            np.maximum,
            "where(a > b, 1, where(a == b, 0.5, 0))",
            "where(b > a, 1, where(a == b, 0.5, 0))",
            args="a b",
            kind="n",
        ),
        _f(
            "minimum",
            np.minimum,
            "where(a < b, 1, where(a == b, 0.5, 0))",
            "where(b < a, 1, where(a == b, 0.5, 0))",
            args="a b",
            kind="n",
        ),
        _f("where", np.where, None, "where(c, 1, 0)", "where(c, 0, 1)", args="c a b", kind="n"),
    )
}
