"""The update table: fused optimizer steps. A subexpression of scalars alone is evaluated once on the host, in float64.

g is the arriving gradient, p the parameter, m, v and b its slots, t a 0-d step count on the device. Bias
corrections are -expm1(t * log(b)), not 1 - b**t, which loses digits where b is near 1.
"""

from __future__ import annotations

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
)  # fmt: skip
TABLE = {u.name: u for u in UPDATES}
