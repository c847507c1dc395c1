"""Random calls: ops, dtypes, shapes up to eight axes, strides, axes and options that no table thinks of.

`--fuzz COUNT` makes COUNT calls a family (20 by default), and `--fuzz-from SEED` other ones; a failure names the call
and its seed. The truth is the oracle's.
"""

from __future__ import annotations

import numpy as np
import pytest

from vsl_compute.conformance.placement import Input
from vsl_compute.conformance.random_views import arranged, part, room, shape
from vsl_compute.conformance.test_gemm import judge as judge_product
from vsl_compute.conformance.test_reduce import judge as judge_reduction
from vsl_compute.conformance.test_rows import supported
from vsl_compute.dtypes import bool_, float32, float64, int32, int64, uint32, uint64
from vsl_compute.random import draw
from vsl_compute.rows.elementwise import ROWS
from vsl_compute.rows.reductions import REDUCTIONS
from vsl_compute.validation import oracle, oracle_ops
from vsl_compute.validation.cases import UNBIASED, domain_of, letters_of, scalar_letter, scalars_of, scale_of, takes
from vsl_compute.view import View

COMPOSITES = True


def pick(subject, values):
    return values[int(subject.rng.integers(0, len(values)))]


def chance(subject, share):
    return subject.rng.random() < share


def number(subject, letters="f"):
    """A dtype that the backend computes in."""
    return pick(subject, [d for d in subject.dtypes(letters) if d in subject.backend.capabilities.functions])


def rows(subject):
    """Any row of the table, on arguments that broadcast, into a fresh result or one of random strides."""
    row, whole = pick(subject, ROWS), shape(subject.rng)
    found = pick(subject, subject.assignments(letters_of(row)))
    if not supported(subject, row, found):
        return
    xs = [
        arranged(subject, found[letter], part(subject.rng, whole), domain_of(row, i, found[letter]))
        for i, letter in enumerate(row.signature.inputs)
    ]
    result, given = found.get(row.signature.outputs, bool_), scalars_of(row, found[scalar_letter(row)])
    args = [x.view for x in xs]
    alone = int(subject.rng.integers(0, len(xs) + 1))  # a Python number, if another argument tells its dtype
    if alone < len(xs) and row.signature.inputs.count(row.signature.inputs[alone]) > 1 and xs[alone].host.size:
        args[alone] = xs[alone].host.flat[0].item()
        xs[alone] = Input(xs[alone].view, xs[alone].host.flat[0])
    whole = np.broadcast_shapes(*(np.shape(x.host) for x in xs)) if xs else whole
    out = room(subject, result, whole) if chance(subject, 0.4) or not xs else None
    got = subject.run(row, *args, **({"out": out} if out is not None else {}), **given)
    expected = np.broadcast_to(oracle.value(row.name, [x.host for x in xs], given, result), whole)
    what = f"{row.name} {result.name} " + " ".join(
        f"{a.shape}{a.strides}" if isinstance(a, View) else repr(a) for a in args
    )
    subject.close(got.to_host(), expected, result, subject.ulp(row, result), what, scale_of(row, [x.host for x in xs]))


def casts(subject):
    """From any dtype to any other."""
    source, target = number(subject, "n"), number(subject, pick(subject, "nb"))
    x = arranged(subject, source, shape(subject.rng), (0.0, 100.0) if target.kind == "u" else (-4.0, 4.0))
    what = f"astype {source.name} to {target.name} {x.view.shape}{x.view.strides}"
    if target is bool_:
        expected = x.host != 0
    elif target.is_floating:
        expected = x.host.astype(np.longdouble)
    else:
        whole = np.trunc(x.host).astype(np.int64) if source.is_floating else x.host
        expected = whole.astype(target.storage)
    subject.close(subject.value("astype", x.view, dtype=target.name), expected, target, 0, what)


def reductions(subject):
    """Any reduction over any axes; one array in four is long."""
    row = pick(subject, REDUCTIONS)
    dtypes = [d for d in (*subject.dtypes("b"), *subject.dtypes("n")) if takes(row, d)]
    dtype = pick(subject, [d for d in dtypes if d in subject.backend.capabilities.functions])
    long = ((1000,), (4097,), (3, 1025), (2049, 3), (70000,), (65, 65, 3), (2, 30000), (30000, 2))
    whole = pick(subject, long) if chance(subject, 0.25) and row.name != "prod" else shape(subject.rng)
    if not row.empty and 0 in whole:
        return
    count = int(subject.rng.integers(0, len(whole) + 1))
    axes = tuple(sorted(int(a) for a in subject.rng.permutation(len(whole))[:count]))
    if row.name == "prod" and np.prod([whole[a] for a in axes], dtype=float) > 40:
        return
    x = arranged(subject, dtype, whole, UNBIASED.get(row.name, (-4.0, 4.0)))
    keepdims, what = chance(subject, 0.3), f"{row.name} {dtype.name} {whole}{x.view.strides} axes {axes}"
    got = subject.value(row, x.view, axes=axes, keepdims=keepdims)
    judge_reduction(subject, row, dtype, x.host, axes, got, what, keepdims)


def products(subject):
    """Any sizes around tiles, batches that broadcast, operands of any strides, sometimes added to what is there."""
    dtype, sizes = number(subject, "n"), (0, 1, 1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 65, 100, 129)
    m, n, k = (pick(subject, sizes[1:] if chance(subject, 0.9) else sizes) for _ in range(3))
    batch = tuple(pick(subject, (1, 2, 3, 5)) for _ in range(pick(subject, (0, 0, 1, 2, 3)))) if m * n * k < 3e4 else ()
    a = arranged(subject, dtype, (*part(subject.rng, batch), m, k))
    b = arranged(subject, dtype, (*part(subject.rng, batch), k, n))
    what = f"matmul {dtype.name} {a.view.shape}{a.view.strides} {b.view.shape}{b.view.strides}"
    if not dtype.is_floating or chance(subject, 0.6):
        judge_product(subject, subject.value("matmul", a.view, b.view), a.host, b.host, dtype, what)
        return
    alpha, beta = pick(subject, (0.5, 2.0, -1.0)), pick(subject, (0.0, 1.0, 0.5))
    wide_a, wide_b = a.host.astype(np.longdouble), b.host.astype(np.longdouble)
    product, scale = np.matmul(wide_a, wide_b), np.matmul(np.abs(wide_a), np.abs(wide_b))
    out = room(subject, dtype, product.shape)
    before = out.to_host().astype(np.longdouble)
    subject.run("matmul", a.view, b.view, out=out, alpha=alpha, beta=beta)
    expected, scale = alpha * product + beta * before, abs(alpha) * scale + abs(beta) * np.abs(before)
    subject.close(out.to_host(), expected, dtype, subject.narrowed(4, dtype), f"{what} {alpha} {beta}", scale)


def lookups(subject):
    """gather, and scatter, whose repeated indices add up."""
    dtype, rows_, inner = number(subject, "n"), int(subject.rng.integers(1, 40)), shape(subject.rng, 60, (0, 1, 2))
    x = arranged(subject, dtype, (rows_, *inner))
    index = subject.rng.integers(0, rows_, shape(subject.rng, 300, (0, 1, 2, 3)))
    ids = subject.put(index, pick(subject, (int32, int64)))
    what = f"gather {dtype.name} {x.view.shape}{x.view.strides} {index.shape}"
    subject.close(subject.value("gather", x.view, ids), x.host[index], dtype, 0, what)
    count = int(subject.rng.integers(0, 500))
    x, index = arranged(subject, dtype, (count, *inner)), subject.rng.integers(0, rows_, count)
    kind = np.longdouble if dtype.is_floating else dtype.storage
    expected, scale = np.zeros((rows_, *inner), kind), np.zeros((rows_, *inner))
    np.add.at(expected, index, x.host.astype(kind))
    np.add.at(scale, index, np.abs(x.host.astype(np.float64)))
    got = subject.value("scatter", x.view, subject.put(index, int64), shape=(rows_, *inner))
    what = f"scatter {dtype.name} {x.view.shape}{x.view.strides} into {rows_}"
    subject.close(got, expected, dtype, max(1, count // rows_) if dtype.is_floating else 0, what, scale)


def orders(subject):
    """sort both ways, with NaN and ties, and prefix sums."""
    dtype = number(subject, "n")
    whole = (pick(subject, (1025, 257, 3000)),) if chance(subject, 0.2) else shape(subject.rng, 3000, (1, 2, 3, 4))
    x = arranged(subject, dtype, whole, special=True)
    down = chance(subject, 0.4)
    values, index = subject.value("sort", x.view, descending=down)
    what = f"sort {dtype.name} {whole}{x.view.strides} descending {down}"
    assert np.array_equal(values, np.take_along_axis(x.host, index, -1), equal_nan=dtype.is_floating), what
    rank = x.host.astype(np.float64) if dtype.is_floating else x.host.astype(object)
    if down:
        rank = -rank
    expected = np.argsort(rank, axis=-1, kind="stable")  # NaN last, whichever way
    assert np.array_equal(index, expected), what
    x = arranged(subject, dtype, whole)
    result = {"i": int64, "u": uint64}.get(dtype.kind, dtype)
    expected = oracle.prefix("sum", x.host)
    scale = np.cumsum(np.abs(x.host.astype(np.longdouble)), axis=-1) if result.is_floating else None
    wanted = expected if result.is_floating else oracle.wrapped(expected, result)
    ulp = subject.narrowed(max(16, whole[-1] / 8), result) if result.is_floating else 0
    subject.close(subject.value("cumsum", x.view), wanted, result, ulp, f"cumsum {what}", scale)


def windows(subject):
    """Overlapping windows: copied, reduced, and folded back."""
    dtype, whole = pick(subject, [float32, number(subject, "f"), int32]), shape(subject.rng, 2000, (1, 2, 3, 4))
    count = int(subject.rng.integers(1, min(3, len(whole)) + 1))
    axes = tuple(sorted(int(a) for a in subject.rng.permutation(len(whole))[:count]))
    sizes, steps, dilations = (tuple(int(n) for n in subject.rng.integers(1, 4, count)) for _ in range(3))
    if any(whole[a] < d * (n - 1) + 1 for a, n, d in zip(axes, sizes, dilations, strict=True)):
        return
    x = arranged(subject, dtype, whole)
    spans = [d * (n - 1) + 1 for n, d in zip(sizes, dilations, strict=True)]
    every = np.lib.stride_tricks.sliding_window_view(x.host, spans, axis=axes)
    cuts = [slice(None)] * len(whole) + [slice(None, None, d) for d in dilations]
    for a, step in zip(axes, steps, strict=True):
        cuts[a] = slice(None, None, step)
    host, view = every[tuple(cuts)], x.view.window(axes, sizes, steps, dilations)
    what = f"window {dtype.name} {whole}{x.view.strides} {axes} {sizes} {steps} {dilations}"
    subject.close(subject.value("contiguous", view), host, dtype, 0, what)
    last = tuple(range(len(whole), len(whole) + count))
    if host.size:
        subject.close(subject.value("max", view, axes=last), host.max(last), dtype, 0, f"max {what}")
    g = arranged(subject, dtype, host.shape)
    options = {"shape": whole, "axes": axes, "steps": steps, "dilations": dilations}
    expected, scale = np.zeros(whole, np.longdouble), np.zeros(whole)
    for tap in np.ndindex(*sizes):
        place = [slice(None)] * len(whole)
        for i, a in enumerate(axes):
            first = tap[i] * dilations[i]
            place[a] = slice(first, first + (host.shape[a] - 1) * steps[i] + 1, steps[i])
        expected[tuple(place)] += g.host[(..., *tap)]
        scale[tuple(place)] += np.abs(g.host[(..., *tap)].astype(np.float64))
    got = subject.value("fold", g.view, **options)
    ulp = subject.narrowed(8, dtype) if dtype.is_floating else 0
    subject.close(
        got, expected if dtype.is_floating else expected.astype(dtype.storage), dtype, ulp, f"fold {what}", scale
    )


def overlaps(subject):
    """A result that lies across its own arguments is that of arguments read first."""
    dtype, n = pick(subject, [float32, int32, number(subject, "f")]), int(subject.rng.integers(4, 300))
    x = arranged(subject, dtype, (n,), (0.0, 9.0))
    view, host = subject.put(x.host, dtype), x.host.copy()
    low, high, turn = slice(0, n - 2), slice(2, n), slice(None, None, -1)
    to, left, right = pick(subject, ((low, high, high), (high, low, low), (high, low, high), (low, low, high)))
    subject.run("add", view.slice(left), view.slice(right), out=view.slice(to))
    host[to] = x.host[left] + x.host[right]
    wide = host if dtype.is_integer else np.asarray(x.host, np.longdouble).copy()
    if not dtype.is_integer:
        wide[to] = x.host[left].astype(np.longdouble) + x.host[right]
    subject.close(
        view.to_host(), wide, dtype, 0.5 if dtype.is_floating else 0, f"add {dtype.name}[{n}] {to} {left} {right}"
    )
    before = view.to_host().copy()
    subject.run("copy", view.slice(turn), out=view)
    assert np.array_equal(view.to_host(), before[::-1])


def convolutions(subject):
    """Strides, padding, dilation, groups, any layout; gradients by the adjoint's identity."""
    rng, groups, dtype = subject.rng, pick(subject, (1, 1, 1, 2, 3)), number(subject)
    count, size = pick(subject, (0, 1, 1, 2, 3)), tuple(int(n) for n in rng.integers(1, 12, 2))
    taps, stride, padding, dilation = (
        tuple(int(n) for n in rng.integers(low, high, 2)) for low, high in ((1, 5), (1, 4), (0, 3), (1, 3))
    )
    if any(n + 2 * p < d * (t - 1) + 1 for n, p, d, t in zip(size, padding, dilation, taps, strict=True)):
        return
    inputs, outputs = (groups * int(rng.integers(1, 5)) for _ in range(2))
    x = arranged(subject, dtype, (count, inputs, *size))
    w = arranged(subject, dtype, (outputs, inputs // groups, *taps))
    bias = arranged(subject, dtype, (outputs,)) if chance(subject, 0.5) else None
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    what = f"conv2d {dtype.name} {x.view.shape}{x.view.strides} {w.view.shape}{w.view.strides} {options}"
    given = [h.host.astype(np.longdouble) for h in (x, w, bias) if h is not None]
    y, scale = oracle_ops.conv2d(*given, **options), oracle_ops.conv2d(*map(np.abs, given), **options)
    got = subject.value("conv2d", x.view, w.view, None if bias is None else bias.view, **options)
    roundings = 0 if bias is None or dtype.itemsize >= 4 else 1  # the bias may be added to a sum that was rounded
    subject.close(got, y, dtype, subject.narrowed(16, dtype) + roundings, what, scale)
    if dtype.itemsize < 4:
        return
    g = arranged(subject, dtype, y.shape)
    plain = oracle_ops.conv2d(*given[:2], **options)
    wide = g.host.astype(np.longdouble)
    inner, size_of = (plain * wide).sum(), (scale * np.abs(wide)).sum() + 1e-30
    for op, first, other, like in (("conv2d_input", g, w, x), ("conv2d_weight", g, x, w)):
        made = subject.value(op, first.view, other.view, shape=like.view.shape, **options)
        assert abs((made.astype(np.longdouble) * like.host).sum() - inner) <= 64 * dtype.eps * size_of, (
            f"{op} of {what}"
        )


def norms(subject):
    """softmax, log_softmax and layer_norm along an axis of any length."""
    dtype = number(subject)
    whole = (
        pick(subject, ((3, 1023), (2, 1025), (1, 2500), (4, 5000)))
        if chance(subject, 0.3)
        else shape(subject.rng, 3000, (1, 2, 3, 4))
    )
    if 0 in whole:
        return
    axis = int(subject.rng.integers(-len(whole), len(whole)))
    x = arranged(subject, dtype, whole, (-30.0, 30.0))
    wide, what = x.host.astype(np.longdouble), f"{dtype.name} {whole}{x.view.strides} axis {axis}"
    low = wide - wide.max(axis, keepdims=True)
    total = np.exp(low).sum(axis, keepdims=True)
    ulp = 32 if dtype.itemsize >= 4 else 2  # the logarithm of the sum may have been rounded
    subject.close(
        subject.value("softmax", x.view, axis=axis), np.exp(low) / total, dtype, ulp, f"softmax {what}", 2.0**-10
    )
    subject.close(
        subject.value("log_softmax", x.view, axis=axis), low - np.log(total), dtype, ulp, f"log_softmax {what}", 32.0
    )
    if whole[-1] > 1:
        centred = wide - wide.mean(-1, keepdims=True)
        y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        got = subject.value("layer_norm", x.view, None, None, normalized_shape=whole[-1:], eps=1e-5)[0]
        spread = np.abs(wide).max() / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        subject.close(got, y, dtype, ulp, f"layer_norm {what}", np.maximum(1.0, spread))


def draws(subject):
    """Words at counters that carry, into any strides: bits and uniform numbers to the bit."""
    kind = pick(subject, ("bits", "uniform"))
    dtype = uint32 if kind == "bits" else pick(subject, [d for d in (float32, float64) if subject.computes(d)])
    low = int(subject.rng.integers(0, 2**32)) if chance(subject, 0.5) else 2**32 - int(subject.rng.integers(1, 40))
    key, counter = (int(subject.rng.integers(0, 2**32)), 3), (low, int(subject.rng.integers(0, 9)), 2, 0)
    whole = shape(subject.rng)
    out = room(subject, dtype, whole)
    subject.run("random", out, kind=kind, key=key, counter=counter, out=out)
    expected = draw(kind, dtype.itemsize, key, counter, out.size).reshape(whole)
    assert np.array_equal(out.to_host(), expected), f"{kind} {dtype.name} {whole}{out.strides} {counter}"


FAMILIES = (rows, casts, reductions, products, lookups, orders, windows, overlaps, convolutions, norms, draws)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_random_calls_agree_with_their_meaning(subject, family, request):
    count, first = request.config.getoption("--fuzz"), request.config.getoption("--fuzz-from")
    for seed in range(first, first + count):
        subject.rng = np.random.default_rng((FAMILIES.index(family), seed))
        try:
            family(subject)
        except Exception as error:
            error.add_note(f"the call of --fuzz-from {seed} --fuzz 1 -k {family.__name__}")
            raise


def test_more_groups_than_one_launch_has(subject):
    """G02: 70 001 matrices, rows and segments; 65 535 is what every Vulkan device has at most along an axis."""
    n = 70_001
    a, b = (subject.place(float32, "dense", (n, *shape_)) for shape_ in ((2, 3), (3, 1)))
    judge_product(subject, subject.value("matmul", a.view, b.view), a.host, b.host, float32, f"matmul of {n}")
    x = subject.place(float32, "dense", (n, 5))
    for op in ("sum", "max"):
        got = subject.value(op, x.view, axes=(1,))
        expected = x.host.astype(np.float64).sum(1) if op == "sum" else x.host.max(1)
        subject.close(got, expected, float32, 8, f"{op} of {n} rows", 4.0)
    assert np.array_equal(subject.value("sort", x.view)[1], np.argsort(x.host, axis=-1, kind="stable"))
    index = subject.rng.integers(0, n, n)
    assert np.array_equal(subject.value("gather", x.view, subject.put(index)), x.host[index])
