"""The update table: fused optimizer steps. A subexpression of scalars alone is evaluated once on the host, in float64.

g is the arriving gradient, p the parameter, m, v and b its slots, t a 0-d step count on the device. Bias
corrections are -expm1(t * log(b)), not 1 - b**t, which loses digits where b is near 1.
"""

from __future__ import annotations

import ast
from functools import cache, partial

from .expression import parse, substitute
from .row import Update
from .row import update as define

update = partial(define, check=False)

_STEP = "p = p - lr / -expm1(t * log_b1) * (m / (sqrt(v) * (1 / sqrt(-expm1(t * log_b2))) + eps))"

_STEP_TOP = _STEP.replace("sqrt(v)", "sqrt(x)")

# Liu et al. 2020: the length of the average's window, rho = rho_inf - 2 t b2**t / (1 - b2**t), which is near t while t is
# small and lost among 1999s in float32. t / expm1(t L) is there written by its series, L = -log b2 (Abramowitz & Stegun
# 23.1.1: Bernoulli numbers); rho_inf = 2 / (1 - b2) - 1.
_RHO_INF = "(2 / (1 - b2) - 1)"
_RHO = (
    f"rho = where(-t * log_b2 < 0.5, ({_RHO_INF} + 2 / log_b2) + t - t * (s * (1 / 6 - s * s * (1 / 360 - s * s * (1 / 15120"
    f" - s * s * (1 / 604800 - s * s / 23950080))))), {_RHO_INF} - 2 * t / expm1(s))"
)
_RECTIFIED = (  # for b2 up to 0.6 rho never passes 5
    f"r = where(rho > 5, sqrt(maximum((rho - 4) * (rho - 2) / rho, 0) * -expm1(-s))"
    f" * sqrt({_RHO_INF} / maximum(({_RHO_INF} - 4) * ({_RHO_INF} - 2), 1e-12)), 0)"
)
_RADAM = (
    "t = t + 1", "s = -t * log_b2", _RHO,
    _RECTIFIED,
    "m = b1 * m + (1 - b1) * d", "v = b2 * v + (1 - b2) * (d * d)",
    "p = p - lr / -expm1(t * log_b1) * m * where(rho > 5, r / (sqrt(v) + eps), 1)",
)  # fmt: skip
_NADAM = (
    "t = t + 1", "now = b1 * (1 - 0.5 * exp(t * rate))", "next = b1 * (1 - 0.5 * exp((t + 1) * rate))", "q = q * now",
    "m = b1 * m + (1 - b1) * d", "v = b2 * v + (1 - b2) * (d * d)", "w = 1 / (sqrt(v) * (1 / sqrt(-expm1(t * log_b2))) + eps)",
    "p = p - lr * (1 - now) / (1 - q) * (d * w) - lr * next / (1 - q * next) * (m * w)",
)  # fmt: skip
_CENTERED = "where(isinf(v), v, maximum(v - a * a, 0))"  # infinity less infinity would be NaN, and stay in p
_L2, _DECAY = "d = g + weight_decay * p", "p = p * (1 - lr * weight_decay)"

UPDATES: tuple[Update, ...] = (
    update("sgd", "g p", "lr weight_decay", "p = p - lr * (g + weight_decay * p)"),
    # Sutskever et al. 2013 as PyTorch has it: the buffer holds gradients, so a change of lr acts at once. `keep` is
    # 1 - dampening; a parameter's first step is not dampened.
    update("sgd_momentum", "g p b t", "lr momentum keep weight_decay",
           "b = momentum * b + where(t == 0, 1, keep) * (g + weight_decay * p)", "t = t + 1", "p = p - lr * b", zero_d="t"),
    update("sgd_nesterov", "g p b t", "lr momentum keep weight_decay",
           "d = g + weight_decay * p", "b = momentum * b + where(t == 0, 1, keep) * d", "t = t + 1", "p = p - lr * (d + momentum * b)", zero_d="t"),
    # Kingma & Ba 2015, algorithm 1: eps outside the root, both moments corrected; the second form adds an L2 penalty.
    update("adam", "g p m v t", "lr b1 b2 log_b1 log_b2 eps", "t = t + 1",
           "m = b1 * m + (1 - b1) * g", "v = b2 * v + (1 - b2) * (g * g)", _STEP, zero_d="t"),
    update("adam_l2", "g p m v t", "lr b1 b2 log_b1 log_b2 eps weight_decay", "t = t + 1", "d = g + weight_decay * p",
           "m = b1 * m + (1 - b1) * d", "v = b2 * v + (1 - b2) * (d * d)", _STEP, zero_d="t"),
    # Loshchilov & Hutter 2019: decay is taken from the weight before the step, not from the gradient.
    update("adamw", "g p m v t", "lr b1 b2 log_b1 log_b2 eps weight_decay", "t = t + 1", "p = p * (1 - lr * weight_decay)",
           "m = b1 * m + (1 - b1) * g", "v = b2 * v + (1 - b2) * (g * g)", _STEP, zero_d="t"),
    # Reddi et al. 2018: the second moment never falls; x is its largest
    update("adam_amsgrad", "g p m v x t", "lr b1 b2 log_b1 log_b2 eps weight_decay", "t = t + 1", _L2, "m = b1 * m + (1 - b1) * d",
           "v = b2 * v + (1 - b2) * (d * d)", "x = maximum(x, v)", _STEP_TOP, zero_d="t"),
    update("adamw_amsgrad", "g p m v x t", "lr b1 b2 log_b1 log_b2 eps weight_decay", "t = t + 1", _DECAY, "m = b1 * m + (1 - b1) * g",
           "v = b2 * v + (1 - b2) * (g * g)", "x = maximum(x, v)", _STEP_TOP, zero_d="t"),
    # Duchi et al. 2011
    update("adagrad", "g p v t", "lr lr_decay eps weight_decay", _L2, "v = v + d * d",
           "p = p - lr / (1 + t * lr_decay) * (d / (sqrt(v) + eps))", "t = t + 1", zero_d="t"),
    # Hinton 2012, lecture 6e; centered by Graves 2013, whose variance may round below 0
    update("rmsprop", "g p v t", "lr alpha eps weight_decay", _L2, "v = alpha * v + (1 - alpha) * (d * d)",
           "p = p - lr * (d / (sqrt(v) + eps))", "t = t + 1", zero_d="t"),
    update("rmsprop_momentum", "g p v b t", "lr alpha eps weight_decay momentum", _L2, "v = alpha * v + (1 - alpha) * (d * d)",
           "b = momentum * b + d / (sqrt(v) + eps)", "p = p - lr * b", "t = t + 1", zero_d="t"),
    update("rmsprop_centered", "g p v a t", "lr alpha eps weight_decay", _L2, "v = alpha * v + (1 - alpha) * (d * d)",
           "a = alpha * a + (1 - alpha) * d", f"p = p - lr * (d / (sqrt({_CENTERED}) + eps))", "t = t + 1", zero_d="t"),
    update("rmsprop_centered_momentum", "g p v b a t", "lr alpha eps weight_decay momentum", _L2, "v = alpha * v + (1 - alpha) * (d * d)",
           "a = alpha * a + (1 - alpha) * d", f"b = momentum * b + d / (sqrt({_CENTERED}) + eps)", "p = p - lr * b",
           "t = t + 1", zero_d="t"),
    # Dozat 2016: q is the product of the momenta so far; `rate` is momentum_decay * log(0.96)
    update("nadam", "g p m v q t", "lr b1 b2 log_b2 eps weight_decay rate", _L2, *_NADAM, zero_d="q t"),
    update("nadamw", "g p m v q t", "lr b1 b2 log_b2 eps weight_decay rate", "d = g + 0", _DECAY, *_NADAM, zero_d="q t"),
    update("radam", "g p m v t", "lr b1 b2 log_b1 log_b2 eps weight_decay", _L2, *_RADAM, zero_d="t"),
    update("radamw", "g p m v t", "lr b1 b2 log_b1 log_b2 eps weight_decay", "d = g + 0", _DECAY, *_RADAM, zero_d="t"),
    # Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2
    update("lion", "g p m", "lr b1 b2 weight_decay", "p = p * (1 - lr * weight_decay) - lr * sign(b1 * m + (1 - b1) * g)",
           "m = b2 * m + (1 - b2) * g"),
    # Jordan et al. 2024: what is to be made orthogonal, u; then a step along the orthogonal matrix g
    update("muon_momentum", "g b u", "momentum keep fresh", "b = momentum * b + (1 - momentum) * g", "u = keep * b + fresh * g"),
    update("muon", "g p", "lr decay", "p = p * decay - lr * g"),
    # an exponential moving average a of p
    update("average", "a p", "decay", "a = decay * a + (1 - decay) * p"),
    # running moments of batch norm towards a batch's m and v, whose `factor` makes the variance the unbiased one
    update("running_moments", "mean variance m v", "momentum factor", "mean = mean + (m - mean) * momentum",
           "variance = variance + (v * factor - variance) * momentum", letters="aabb"),
    # clipping and unscaling, `factor` on the device: 0 drops what is there, even infinities
    update("rescale", "p factor", "", "p = where(factor == 0, 0, p * factor)", zero_d="factor"),
    update("clip", "p", "bound", "p = where(p > bound, bound, where(p < -bound, -bound, p))"),  # a NaN stays, and shows
    # the loss scale of mixed precision: less after a step that found infinities, more after `interval` steps without
    update("loss_scale", "found scale tracker", "growth backoff interval",
           "tracker = where(found == 0, tracker + 1, 0)",
           "grown = where((tracker == interval) & ~isinf(scale * growth), scale * growth, scale)",
           "scale = where(found == 0, grown, scale * backoff)",
           "tracker = where(tracker == interval, 0, tracker)"),
)  # fmt: skip
TABLE = {u.name: u for u in UPDATES}


@cache
def guarded(row: Update) -> Update:
    """The row that steps with g * inverse_scale, and leaves everything as it was where found_inf is not 0.

    Both are 0-d slots, so that a step of mixed precision is skipped on the device, without the host looking.
    """
    names = tuple(sorted({*row.arrays, *row.scalars, *(target for target, _ in row.statements)}))
    trees: dict[str, ast.expr] = {"g": ast.Name("unscaled", ast.Load())}  # what a name means by now
    statements = [("unscaled", "g * inverse_scale")] if "g" in row.arrays else []
    for target, text in row.statements:
        value = ast.unparse(substitute(parse(text, names), trees))
        local = f"new_{target}" if target in row.written else target
        trees[target] = ast.Name(local, ast.Load())
        statements.append((local, value))
    statements += [(name, f"where(found_inf == 0, new_{name}, {name})") for name in row.written]
    return Update(
        f"{row.name}_guarded",
        (*row.arrays, "inverse_scale", "found_inf"),
        row.letters + "ss",
        row.scalars,
        tuple(statements),
        row.zero_d | {"inverse_scale", "found_inf"},
    )
