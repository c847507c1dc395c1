"""The update table: fused optimizer steps. A subexpression of scalars alone is evaluated once on the host, in float64.

g is the arriving gradient, p the parameter, m, v and b its slots, t a 0-d step count on the device. Bias
corrections are -expm1(t * log(b)), not 1 - b**t, which loses digits where b is near 1.
"""

from __future__ import annotations

import ast
from functools import cache

from .expression import parse, substitute
from .row import Update, update

_STEP = "p = p - lr / -expm1(t * log_b1) * (m / (sqrt(v) * (1 / sqrt(-expm1(t * log_b2))) + eps))"

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
