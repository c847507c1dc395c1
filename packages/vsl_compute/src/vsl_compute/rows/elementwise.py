"""The elementwise op table: one row an op, its value and its derivatives, for every backend at once.

Order of a row: name, signature, value, then the gradient of each argument. `x != x` and isnan keep NaN as NumPy
does, so kernels are never built with fast-math. A gradient of None says that nothing flows there;
where(g == g, 0, 0) is a zero that an infinite g does not make NaN.
"""

from __future__ import annotations

from functools import partial

from .recurrent import ROWS as RECURRENT
from .row import Row
from .row import row as define

row = partial(define, check=False)

ROOT_HALF = 0.7071067811865476
INV_ROOT_2PI = 0.3989422804014327
GELU_TANH = 0.7978845608028654  # sqrt(2 / pi)
SELU_SCALE = 1.0507009873554805
SELU_ALPHA_SCALE = 1.7580993408473766  # alpha * scale, Klambauer et al. 2017
LN2, LN10 = 0.6931471805599453, 2.302585092994046

_NOWHERE = "(hypot(a, b) == 0) | isinf(hypot(a, b))"
_SIG = "1 / (1 + exp(-x))"
_GELU_INNER = f"tanh({GELU_TANH} * (x + 0.044715 * x * x * x))"
_NO, _YES = (
    f"(log1p(exp(-abs(x))) + maximum({sign}x, 0))" for sign in ("", "-")
)  # -log of 1 - p and of p, p = sigmoid(x)
_UNEQUAL = "(b / (1 + exp(x)) + (1 - b) / (1 + exp(-x)))"  # 1 - p_t of Lin et al. 2017
_LOST, _WON = f"where(b == 1, 0, (1 - b) * {_NO})", f"where(b == 0, 0, b * {_YES})"  # 0 times an infinite cost is 0
_ENTROPY = f"({_LOST} + {_WON})"
_EVEN = f"(({_UNEQUAL} == 0) | (gamma == 0))"  # where the focus has no slope
_BALANCE = "(positive * b + negative * (1 - b))"
_MISH = "tanh(maximum(x, 0) + log1p(exp(-abs(x))))"
# x as a factor of what is 0 in every dtype beyond 1e4: infinity, or a square that overflows, would make that NaN
_LOW, _NEAR = "maximum(x, -1e4)", "minimum(maximum(x, -1e4), 1e4)"
_FAR = "minimum(maximum(x, -1e20), 1e20)"  # x / (1 + |x|) is 1 there
_SLOPE = "(1 / (1 + exp(-x)) / (1 + exp(x)))"

ROWS: tuple[Row, ...] = (
    #   name             signature  value                                    gradient of each argument
    row("add",           "nn>n",    "a + b",                                 "g", "g"),
    row("subtract",      "nn>n",    "a - b",                                 "g", "-g"),
    row("multiply",      "nn>n",    "a * b",                                 "g * b", "g * a"),
    row("divide",        "ff>f",    "a / b",                                 "g / b", "-g * y / b"),
    row("floor_divide",  "nn>n",    "a // b",                                None, None, domain=(0.5, 40)),
    row("remainder",     "nn>n",    "a % b",                                 "g", "-g * (a // b)", domain=(0.5, 40)),
    # 32 on GPUs: 24 were seen of float64 on Vulkan, whose logarithm's last digits the exponent multiplies by up to 709
    row("power",         "ff>f",    "power(a, b)",
        "where(b == 0, 0, g * b * power(a, b - 1))", "where((a == 0) & (b >= 0), 0, g * y * log(a))", domain=(0.05, 4), gpu_ulp=32),
    row("atan2",         "ff>f",    "atan2(a, b)",
        f"where({_NOWHERE}, 0, g * (b / hypot(a, b)) / hypot(a, b))", f"where({_NOWHERE}, 0, -g * (a / hypot(a, b)) / hypot(a, b))"),
    row("hypot",         "ff>f",    "hypot(a, b)",                           "where(y == 0, 0, g * (a / y))", "where(y == 0, 0, g * (b / y))"),
    row("copysign",      "ff>f",    "copysign(a, b)",                        "where(a == 0, 0, g * copysign(1, a) * copysign(1, b))", None),
    row("maximum",       "nn>n",    "maximum(a, b)",
        "where(a > b, g, where(a == b, 0.5 * g, 0))", "where(b > a, g, where(a == b, 0.5 * g, 0))"),
    row("minimum",       "nn>n",    "minimum(a, b)",
        "where(a < b, g, where(a == b, 0.5 * g, 0))", "where(b < a, g, where(a == b, 0.5 * g, 0))"),
    row("where",         "bnn>n",   "where(c, a, b)",                        None, "where(c, g, 0)", "where(c, 0, g)"),
    row("where_bool",    "bbb>b",   "(c & a) | (~c & b)",                    None, None, None),
    # comparisons and logic
    row("equal",         "nn>b",    "a == b",                                None, None),
    row("not_equal",     "nn>b",    "a != b",                                None, None),
    row("less",          "nn>b",    "a < b",                                 None, None),
    row("less_equal",    "nn>b",    "a <= b",                                None, None),
    row("greater",       "nn>b",    "a > b",                                 None, None),
    row("greater_equal", "nn>b",    "a >= b",                                None, None),
    row("logical_and",   "bb>b",    "a & b",                                 None, None),
    row("logical_or",    "bb>b",    "a | b",                                 None, None),
    row("logical_xor",   "bb>b",    "a ^ b",                                 None, None),
    row("logical_not",   "b>b",     "~x",                                    None),
    row("isnan",         "f>b",     "isnan(x)",                              None),
    row("isinf",         "f>b",     "isinf(x)",                              None),
    row("isfinite",      "f>b",     "~(isnan(x) | isinf(x))",                None),
    row("bitwise_and",   "ii>i",    "a & b",                                 None, None),
    row("bitwise_or",    "ii>i",    "a | b",                                 None, None),
    row("bitwise_xor",   "ii>i",    "a ^ b",                                 None, None),
    row("bitwise_invert","i>i",     "~x",                                    None),
    row("bitwise_left_shift",  "ii>i", "a << b",                             None, None, domain=(0, 7)),
    row("bitwise_right_shift", "ii>i", "a >> b",                             None, None, domain=(0, 7)),
    # arithmetic of one argument
    row("positive",      "n>n",     "x",                                     "g"),
    row("negative",      "n>n",     "-x",                                    "-g"),
    row("absolute",      "n>n",     "abs(x)",                                "where(x > 0, g, where(x < 0, -g, 0))"),
    row("sign",          "n>n",     "sign(x)",                               "where(g == g, 0, 0)"),
    row("square",        "n>n",     "x * x",                                 "2 * g * x"),
    row("reciprocal",    "f>f",     "1 / x",                                 "-g * y * y", domain=(0.05, 4)),
    row("sqrt",          "f>f",     "sqrt(x)",                               "0.5 * g / y", domain=(0.01, 40)),
    row("rsqrt",         "f>f",     "1 / sqrt(x)",                           "-0.5 * g * y / x", domain=(0.01, 40)),
    row("exp",           "f>f",     "exp(x)",                                "g * y"),
    row("exp2",          "f>f",     "exp2(x)",                               f"g * y * {LN2}"),
    row("expm1",         "f>f",     "expm1(x)",                              "g * (y + 1)"),
    row("log",           "f>f",     "log(x)",                                "g / x", domain=(0.01, 40)),
    row("log1p",         "f>f",     "log1p(x)",                              "g / (1 + x)", domain=(-0.9, 40)),
    row("log2",          "f>f",     "log2(x)",                               f"g / (x * {LN2})", domain=(0.01, 40)),
    row("log10",         "f>f",     "log10(x)",                              f"g / (x * {LN10})", domain=(0.01, 40)),
    row("sin",           "f>f",     "sin(x)",                                "g * cos(x)"),
    row("cos",           "f>f",     "cos(x)",                                "-g * sin(x)"),
    row("tan",           "f>f",     "tan(x)",                                "g * (1 + y * y)", domain=(-1.5, 1.5)),
    row("asin",          "f>f",     "asin(x)",                               "g / sqrt((1 - x) * (1 + x))", domain=(-0.99, 0.99)),
    row("acos",          "f>f",     "acos(x)",                               "-g / sqrt((1 - x) * (1 + x))", domain=(-0.99, 0.99)),
    row("atan",          "f>f",     "atan(x)",                               "g / (1 + x * x)"),
    row("sinh",          "f>f",     "sinh(x)",                               "g * cosh(x)"),
    row("cosh",          "f>f",     "cosh(x)",                               "g * sinh(x)"),
    row("tanh",          "f>f",     "tanh(x)",                               "g * (1 - y * y)"),
    row("asinh",         "f>f",     "asinh(x)",                              "g / hypot(x, 1)"),
    row("acosh",         "f>f",     "acosh(x)",                              "g / (sqrt(x - 1) * sqrt(x + 1))", domain=(1.01, 40)),
    row("atanh",         "f>f",     "atanh(x)",                              "g / ((1 - x) * (1 + x))", domain=(-0.99, 0.99)),
    row("erf",           "f>f",     "erf(x)",                                "g * 1.1283791670955126 * exp(-(x * x))"),
    row("floor",         "f>f",     "floor(x)",                              "where(g == g, 0, 0)"),
    row("ceil",          "f>f",     "ceil(x)",                               "where(g == g, 0, 0)"),
    row("round",         "f>f",     "rint(x)",                               "where(g == g, 0, 0)"),
    row("trunc",         "f>f",     "trunc(x)",                              "where(g == g, 0, 0)"),
    row("clamp",         "n>n",     "minimum(maximum(x, low), high)",
        "where((x >= low) & (x <= high), g, 0)", scalars="low high"),
    # activations
    row("sigmoid",       "f>f",     _SIG,                                    "g * y * (1 - y)"),
    row("logsigmoid",    "f>f",     "minimum(x, 0) - log1p(exp(-abs(x)))",   "g / (1 + exp(x))"),
    row("relu",          "n>n",     "maximum(x, 0)",                         "where(x <= 0, 0, g)"),
    row("relu6",         "n>n",     "minimum(maximum(x, 0), 6)",             "where((x <= 0) | (x >= 6), 0, g)"),
    row("leaky_relu",    "f>f",     "where(x > 0, x, slope * x)",            "where(x > 0, g, slope * g)", scalars="slope"),
    row("elu",           "f>f",     "where(x > 0, x, alpha * expm1(minimum(x, 0)))",
        "where(x > 0, g, g * alpha * exp(minimum(x, 0)))", scalars="alpha"),
    row("selu",          "f>f",     f"where(x > 0, {SELU_SCALE} * x, {SELU_ALPHA_SCALE} * expm1(minimum(x, 0)))",
        f"where(x > 0, {SELU_SCALE} * g, g * {SELU_ALPHA_SCALE} * exp(minimum(x, 0)))"),
    row("softplus",      "f>f",     "maximum(x, 0) + log1p(exp(-abs(x)))",   "g / (1 + exp(-x))"),
    row("softsign",      "f>f",     f"{_FAR} / (1 + abs({_FAR}))",            "g / ((1 + abs(x)) * (1 + abs(x)))"),
    row("silu",          "f>f",     f"{_LOW} / (1 + exp(-x))",               f"g * ({_SIG}) * (1 + {_NEAR} * (1 - {_SIG}))"),
    row("hardsigmoid",   "f>f",     "minimum(maximum(x / 6 + 0.5, 0), 1)",   "where((x > -3) & (x < 3), g / 6, 0)", scale="0.5 + abs(x) / 6"),
    row("hardswish",     "f>f",     "where(x <= -3, 0, where(x >= 3, x, x * (x + 3) / 6))",
        "where(x <= -3, 0, where(x >= 3, g, g * (x / 3 + 0.5)))", scale="abs(x)"),
    row("mish",          "f>f",     f"{_LOW} * {_MISH}",
        f"g * ({_MISH} + {_NEAR} * (1 - {_MISH} * {_MISH}) * ({_SIG}))"),
    row("celu",          "f>f",     "maximum(x, 0) + minimum(alpha * expm1(minimum(x, 0) / alpha), 0)",
        "where(x > 0, g, g * exp(minimum(x, 0) / alpha))", scalars="alpha"),
    row("hardtanh",      "f>f",     "minimum(maximum(x, low), high)",        "where((x <= low) | (x >= high), 0, g)", scalars="low high"),
    row("hardshrink",    "f>f",     "where(abs(x) <= bound, 0, x)",          "where(abs(x) <= bound, 0, g)", scalars="bound"),
    row("softshrink",    "f>f",     "where(abs(x) <= bound, 0, x - copysign(bound, x))", "where(abs(x) <= bound, 0, g)", scalars="bound",
        scale="abs(x)"),
    row("threshold",     "f>f",     "where(x <= bound, value, x)",           "where(x <= bound, 0, g)", scalars="bound value"),
    row("tanhshrink",    "f>f",     "x - tanh(x)",                           "g * tanh(x) * tanh(x)", scale="abs(x)"),
    row("prelu",         "ff>f",    "where(a > 0, a, b * a)",                "where(a > 0, g, g * b)", "where(a > 0, 0, g * a)"),
    row("glu",           "ff>f",    "a / (1 + exp(-b))",                     "g / (1 + exp(-b))", "g * a * (1 / (1 + exp(-b)) / (1 + exp(b)))"),
    row("gelu",          "f>f",     f"0.5 * {_LOW} * (1 + erf(x * {ROOT_HALF}))",
        f"g * (0.5 * (1 + erf(x * {ROOT_HALF})) + {_NEAR} * {INV_ROOT_2PI} * exp(-0.5 * x * x))", scale="abs(x)"),
    row("gelu_tanh",     "f>f",     f"0.5 * {_LOW} * (1 + {_GELU_INNER})",
        f"g * (0.5 * (1 + {_GELU_INNER}) + 0.5 * {_NEAR} * (1 - {_GELU_INNER} * {_GELU_INNER}) * {GELU_TANH} * (1 + 0.134145 * {_NEAR} * {_NEAR}))",
        scale="abs(x)"),
    row("root",          "f>f",     "sqrt(x)",                               "where(y == 0, 0, 0.5 * g / y)", domain=(0.01, 40)),
    row("multiply_add",  "fff>f",   "x * a + b",                             "g * a", "g * x", "g", args="x a b", scale="abs(x * a) + abs(b)"),
    row("normalize",     "fnnnn>f", "(x - mean) * rstd * weight + bias",     "g * rstd * weight", "-g * rstd * weight",
        "g * (x - mean) * weight", "g * (x - mean) * rstd", "g", args="x mean rstd weight bias",
        scale="(abs(x) + abs(mean)) * abs(rstd * weight) + abs(bias)"),
    # without gradients: composites alone run them, on views
    row("normalize_relu", "fnnnn>f", "maximum((x - mean) * rstd * weight + bias, 0)", args="x mean rstd weight bias",
        scale="(abs(x) + abs(mean)) * abs(rstd * weight) + abs(bias)"),
    row("normalize_add_relu", "ffnnnn>f", "maximum((x - mean) * rstd * weight + bias + r, 0)", args="x r mean rstd weight bias",
        scale="(abs(x) + abs(mean)) * abs(rstd * weight) + abs(bias) + abs(r)"),
    row("normalize_mask", "ffnnnn>f", "where((x - mean) * rstd * weight + bias <= 0, 0, d)",
        "where((x - mean) * rstd * weight + bias <= 0, 0, g)", None, None, None, None, None, args="d x mean rstd weight bias"),
    row("normalize_back", "ffnnnnn>f", "d * scale + ((x - mean) * rstd * b + a)", "g * scale", "g * rstd * b", "g * d", "-g * rstd * b",
        "g * (x - mean) * b", "g * (x - mean) * rstd", "g", args="d x scale mean rstd b a",
        scale="abs(d * scale) + (abs(x) + abs(mean)) * abs(rstd * b) + abs(a)"),
    row("standardize",   "fnn>f",   "(x - mean) * rstd",                     "g * rstd", "-g * rstd", "g * (x - mean)", args="x mean rstd",
        scale="(abs(x) + abs(mean)) * abs(rstd)"),
    row("project",       "fnnf>n",  "(x - mean) * rstd * d",                 "g * rstd * d", "-g * rstd * d", "g * (x - mean) * d",
        "g * (x - mean) * rstd", args="x mean rstd d", scale="(abs(x) + abs(mean)) * abs(rstd * d)"),  # terms of a sum, in its dtype
    row("scaled_product", "ff>f",   "a * b * alpha",                         "g * b * alpha", "g * a * alpha", scalars="alpha"),
    row("rstd",          "f>f",     "1 / sqrt(x + eps)",                     "-0.5 * g * y * y * y", scalars="eps", domain=(0.01, 40)),
    row("add_where_equal", "nni>n", "a + where(i == k, x, 0)",               "g", "where(i == k, g, 0)", None, args="a x i", scalars="k"),
    # losses of a prediction a (or logit x) and a target b
    row("l1_loss",       "ff>f",    "abs(a - b)", "where(a > b, g, where(a < b, -g, 0))", "where(a > b, -g, where(a < b, g, 0))"),
    row("smooth_l1_loss", "ff>f",   "where(abs(a - b) < beta, 0.5 * (a - b) * ((a - b) / beta), abs(a - b) - 0.5 * beta)",
        "where(abs(a - b) < beta, g * ((a - b) / beta), where(a > b, g, where(a < b, -g, g * (a - b))))",
        "where(abs(a - b) < beta, g * ((b - a) / beta), where(a > b, -g, where(a < b, g, g * (b - a))))", scalars="beta"),
    row("huber_loss",    "ff>f",    "where(abs(a - b) <= delta, 0.5 * (a - b) * (a - b), delta * (abs(a - b) - 0.5 * delta))",
        "where(abs(a - b) <= delta, g * (a - b), where(a > b, delta * g, where(a < b, -(delta * g), g * (a - b))))",
        "where(abs(a - b) <= delta, g * (b - a), where(a > b, -(delta * g), where(a < b, delta * g, g * (b - a))))", scalars="delta"),
    # logarithms stop at -100, so that a certain mistake costs 100 and not infinity, as in PyTorch
    row("binary_cross_entropy", "ff>f", "(b - 1) * maximum(log1p(-a), -100) - b * maximum(log(a), -100)",
        "g * (a - b) / maximum(a * (1 - a), 1e-12)", "g * (maximum(log1p(-a), -100) - maximum(log(a), -100))", domain=(0.1, 0.9)),
    row("binary_cross_entropy_with_logits", "fff>f", f"{_LOST} + where(b == 0, 0, weight * b * {_YES})",
        "g * ((1 - b) / (1 + exp(-x)) - weight * b / (1 + exp(x)))", f"g * (weight * {_YES} - {_NO})", f"g * b * {_YES}",
        args="x b weight", scale="(1 + abs(b)) * (1 + abs(x)) * (1 + abs(weight))"),
    row("kl_div",        "ff>f",    "where(b == 0, 0, b * (log(b) - a))",    "-b * g", "where(b == 0, 0, g * (log(b) + 1 - a))",
        domain=(0.05, 4), scale="abs(b) * (2 + abs(a))"),
    row("kl_div_log",    "ff>f",    "where((exp(b) == 0) & ~isnan(a), 0, exp(b) * (b - a))", "-exp(b) * g",
        "where((exp(b) == 0) & ~isnan(a), 0, g * exp(b) * (b - a + 1))", domain=(-2, 1),
        scale="exp(b) * (1 + abs(a) + abs(b))"),
    row("hinge_loss",    "ff>f",    "maximum(margin - a * b, 0)",            "where(margin - a * b >= 0, -b * g, 0)",
        "where(margin - a * b >= 0, -a * g, 0)", scalars="margin", scale="1 + abs(a * b)"),
    row("hinge_embedding_loss", "ff>f", "where(b != b, b, where(b != -1, a, 0) + where(b != 1, maximum(margin - a, 0), 0))",
        "where(b != -1, g, 0) - where((b != 1) & (margin - a >= 0), g, 0)", None, scalars="margin", scale="1 + abs(a)"),
    row("soft_margin_loss", "ff>f", "maximum(-(a * b), 0) + log1p(exp(-abs(a * b)))", "-b * g / (1 + exp(a * b))",
        "-a * g / (1 + exp(a * b))", scale="1 + abs(a * b)", domain=(-2, 2)),
    row("sigmoid_focal_loss", "ff>f", f"{_BALANCE} * power({_UNEQUAL}, gamma) * {_ENTROPY}",
        f"g * {_BALANCE} * (power({_UNEQUAL}, gamma) * (1 / (1 + exp(-x)) - b) + where({_EVEN} | ({_SLOPE} == 0), 0,"
        f" gamma * power({_UNEQUAL}, gamma - 1) * {_ENTROPY} * (1 - 2 * b) * {_SLOPE}))",
        f"g * ((positive - negative) * power({_UNEQUAL}, gamma) * {_ENTROPY} + {_BALANCE} * "
        f"(where(({_UNEQUAL} == 0) & (gamma > 0), 0, power({_UNEQUAL}, gamma) * ({_YES} - {_NO}))"
        f" + where({_EVEN}, 0, gamma * power({_UNEQUAL}, gamma - 1) * {_ENTROPY} * (1 / (1 + exp(x)) - 1 / (1 + exp(-x))))))",
        args="x b", scalars="positive negative gamma", domain=(0.05, 0.95), gpu_ulp=64,
        scale="(1 + abs(x)) * power(maximum(abs(b), 1), 4)"),  # targets outside [0, 1] cancel in each of the factors
    # a scalar written everywhere, and what layers are made of
    row("fill",          ">n",      "alpha",                                 scalars="alpha"),
    row("fill_like",     "n>n",     "where(x == x, alpha, alpha)",            "where(g == g, 0, 0)", scalars="alpha"),
    row("scale",         "n>n",     "alpha * x",                             "alpha * g", scalars="alpha"),
    row("dropout_apply", "bf>f",    "where(keep, x * factor, 0)",            None, "where(keep, g * factor, 0)", args="keep x", scalars="factor"),
    *RECURRENT,
)  # fmt: skip
TABLE = {r.name: r for r in ROWS}
