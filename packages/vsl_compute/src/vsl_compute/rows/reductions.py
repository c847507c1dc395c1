"""The reduction table: a state an op, combined in pairwise or tree order, with its gradient beside it."""

from __future__ import annotations

from .row import Reduction
from .signature import Signature


def _reduction(
    name: str,
    signature: str,
    state: str,
    *,
    identity: str,
    map: str,
    combine: str,
    finish: str,
    index: str = "",
    gradient: str | None = None,
    weight: str | None = None,
    integers: str = "same",
    empty: bool = True,
    booleans: bool = False,
    ulp: float = 4.0,
) -> Reduction:
    def split(text: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in text.split(";"))

    return Reduction(
        name,
        Signature.parse(signature),
        tuple(state.split()),
        split(identity),
        split(map),
        split(combine),
        split(finish),
        frozenset(index.split()),
        gradient,
        weight,
        integers,
        empty,
        booleans,
        ulp,
        max(ulp, 16.0),
    )


# NaN wins, then the larger (smaller) value, then the smaller index.
def _first(better: str) -> str:
    valued = f"(v1 {better} v2) | ((v1 == v2) & (i1 < i2))"
    return f"(isnan(v1) & (~isnan(v2) | (i1 < i2))) | (~isnan(v2) & ~isnan(v1) & ({valued}))"


_MAX, _MIN = _first(">"), _first("<")
_NOBODY = "2147483647"  # an index that loses every tie

REDUCTIONS = (
    _reduction("sum", "n>n", "s", identity="0", map="x", combine="s1 + s2", finish="s", gradient="g", integers="int64", booleans=True),
    _reduction("mean", "n>n", "s", identity="0", map="x", combine="s1 + s2", finish="s / n", gradient="g / n", integers="float32"),
    _reduction("prod", "n>n", "s", identity="1", map="x", combine="s1 * s2", finish="s", integers="int64", booleans=True,
               ulp=64),  # n - 1 roundings in whatever order: Higham 2002, "Accuracy and Stability", section 3.1
    _reduction("max", "n>n", "v", identity="lowest", map="x", combine="maximum(v1, v2)", finish="v", gradient="g",
               weight="(x == y) | isnan(x)", empty=False),
    _reduction("min", "n>n", "v", identity="highest", map="x", combine="minimum(v1, v2)", finish="v", gradient="g",
               weight="(x == y) | isnan(x)", empty=False),
    _reduction("all", "b>b", "v", identity="1", map="x", combine="minimum(v1, v2)", finish="v != 0", booleans=True),
    _reduction("any", "b>b", "v", identity="0", map="x", combine="maximum(v1, v2)", finish="v != 0", booleans=True),
    _reduction("argmax", "n>i", "v i", identity=f"lowest; {_NOBODY}", map="x; k", index="i", empty=False,
               combine=f"where({_MAX}, v1, v2); where({_MAX}, i1, i2)", finish="i"),
    _reduction("argmin", "n>i", "v i", identity=f"highest; {_NOBODY}", map="x; k", index="i", empty=False,
               combine=f"where({_MIN}, v1, v2); where({_MIN}, i1, i2)", finish="i"),
    _reduction("max_index", "n>ni", "v i", identity=f"lowest; {_NOBODY}", map="x; k", index="i", empty=False,
               combine=f"where({_MAX}, v1, v2); where({_MAX}, i1, i2)", finish="v; i"),
    # Chan, Golub & LeVeque 1983: two groups' counts c, means m and squared deviations s
    _reduction("moments", "f>ff", "c m s", identity="0; 0; 0", map="1; x; 0",
               finish="where(n == 0, nan, m); where((n == 0) | isinf(m) | isnan(m), nan, s / n)",
               combine="c1 + c2; where(c1 + c2 == 0, 0, m1 + (m2 - m1) * (c2 / maximum(c1 + c2, 1)));"
                       "s1 + s2 + (m2 - m1) * (c1 * (c2 / maximum(c1 + c2, 1))) * (m2 - m1)",  # no square: 0 * inf is NaN
               ulp=8),  # a variance is a sum of n roundings: 4.5 ULP were seen at n = 257
    # the running maximum and the sum of exp(x - maximum); where(m == ..) keeps -inf minus -inf from being NaN
    _reduction("logsumexp", "f>f", "m s", identity="-inf; 0", map="x; 1", finish="m + log(s)", gradient="where(x == -inf, 0, g * exp(x - y))",
               combine="maximum(m1, m2); where(m1 == maximum(m1, m2), s1, s1 * exp(m1 - maximum(m1, m2)))"
                       " + where(m2 == maximum(m1, m2), s2, s2 * exp(m2 - maximum(m1, m2)))"),
    # the largest magnitude and the sum of squares over it, as BLAS's nrm2: squares alone leave float32 at 1e19 (Blue 1978)
    _reduction("norm", "f>f", "m s", identity="0; 0", map="abs(x); where(x == 0, 0, 1)", finish="where(m == 0, 0, m * sqrt(s))",
               combine="maximum(m1, m2); where(m1 == maximum(m1, m2), s1, s1 * (m1 / maximum(m1, m2)) * (m1 / maximum(m1, m2)))"
                       " + where(m2 == maximum(m1, m2), s2, s2 * (m2 / maximum(m1, m2)) * (m2 / maximum(m1, m2)))",
               gradient="where(y == 0, 0, g * (x / y))", ulp=8),
    _reduction("norm_inf", "f>f", "m", identity="0", map="abs(x)", combine="maximum(m1, m2)", finish="m"),
)  # fmt: skip
TABLE = {r.name: r for r in REDUCTIONS}
