"""Trials of rows, reductions and updates: values in every layout, gradients against differences of the meaning."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..backend import ComputeBackend
from ..conformance.placement import LAYOUTS, OUTPUTS, Output, host
from ..dispatch import reduced_dtypes, run, run_update
from ..dtypes import BY_NAME, DType, bool_, float32, int32
from ..rows.derive import gradient_row
from ..rows.row import Reduction, Row, Update
from ..rows.signature import LETTERS
from ..view import Shape
from . import oracle, oracle_updates, pullback
from .cases import (
    AXES,
    BLOCK,
    GRID,
    UNBIASED,
    domain_of,
    letters_of,
    reduction_scales,
    scalar_letter,
    scalars_of,
    scale_of,
    slot_domain,
    takes,
    update_scalars,
)
from .cases_ops import SIZES
from .derivative import adjoint, partial
from .inputs import Laid, drawn, laid
from .trial import Result, Trial, Wanted
from .wide import LONG, Array

GRADIENT_ULP = 64.0  # of a gradient row, at the scale of what arrives
GRADIENT_STEPS = 8.0  # y is saved in the dtype, and formulas cancel
MIXED: tuple[Shape, ...] = ((4, 1, 6), (5, 1), (6,), (1, 5, 6), (), (4, 1, 1), (1, 6), (5, 6))
GRADIENT_LAYOUTS = ("dense", "transposed", "broadcast", "flipped")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 60000.0, -60000.0, 2.0**-14)
DIFFERENTIABLE = ("sum", "mean", "prod", "max", "min", "moments", "logsumexp", "norm")


def generator(name: str) -> np.random.Generator:
    """Random numbers of an op's own: the same in each run, whatever else runs."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def assignment(row: Row, dtype: DType) -> dict[str, DType] | None:
    """The dtype of each letter where the row's main one is `dtype`; None if that does not fit.

    Beside floating numbers n is a statistic, float32 at least, and i an index.
    """
    letters = set(row.signature.inputs + row.signature.outputs)
    main = next((letter for letter in "fnib" if letter in letters_of(row)), "b")
    if dtype.kind not in LETTERS[main]:
        return None
    wider = dtype if dtype.itemsize >= 4 else float32
    others = {"n": wider, "i": int32, "b": bool_}
    return {letter: dtype if letter == main else others[letter] for letter in letters}


def row_trials(row: Row, dtype: DType, stress: bool) -> Iterator[Trial]:
    """Values in every layout, at odd sizes and with arguments that broadcast; then gradients."""
    found = assignment(row, dtype)
    if found is None:
        return
    rng = generator(f"{row.name} {dtype.name}")

    def draws(layout: str, shapes: Sequence[Shape]) -> list[Laid]:
        return [
            drawn(rng, found[letter], layout if layout != "mixed" else LAYOUTS[(2 * i + 1) % len(LAYOUTS)], shape,
                  domain_of(row, i, found[letter]), i)
            for i, (letter, shape) in enumerate(zip(row.signature.inputs, shapes, strict=True))
        ]  # fmt: skip

    count = len(row.args)
    for number, layout in enumerate(LAYOUTS):
        differentiated = layout in GRADIENT_LAYOUTS and any(row.gradients) and dtype.is_floating
        yield _row_trial(
            row, found, draws(layout, [GRID] * count), GRID, OUTPUTS[number % len(OUTPUTS)], differentiated, rng
        )
    sizes: list[Shape] = [(1,), (1037,)]
    if stress:
        sizes += [(n,) for n in SIZES] + [(4097, 1), (1, 4097), (127, 33), (0, 3), ()]
    for shape in sizes:
        yield _row_trial(row, found, draws("dense", [shape] * count), shape, "dense", False, rng)
    if count > 1:
        yield _row_trial(
            row, found, draws("mixed", MIXED[:count]), np.broadcast_shapes(*MIXED[:count]), "pitched", False, rng
        )
    if (
        stress
        and dtype.is_floating
        and 1 <= row.signature.inputs.count("f") + row.signature.inputs.count("n") == count <= 2
    ):
        values = np.meshgrid(*[np.array(SPECIAL)] * count)
        xs = [laid(rng, found[letter], "stepped", v) for letter, v in zip(row.signature.inputs, values, strict=True)]
        yield _row_trial(row, found, xs, values[0].shape, "dense", False, rng)


def _row_trial(row: Row, found: Mapping[str, DType], xs: list[Laid], shape: Shape, guarded: str, differentiated: bool,
               rng: np.random.Generator) -> Trial:  # fmt: skip
    result = found.get(row.signature.outputs, bool_)
    given = scalars_of(row, found[scalar_letter(row)])
    what = f"{', '.join(map(str, xs)) or list(shape)}" + (f" {given}" if given else "")
    arriving = drawn(rng, result, "dense", shape, (-1.0, 1.0)) if differentiated else None

    def call(backend: ComputeBackend) -> dict[str, Result]:
        views = [x.on(backend) for x in xs]
        out = Output(backend, result, shape, guarded)
        run(row, *views, out=out.view, **given)
        parts = {"value": Result(out.read(row.name), result)}
        if arriving is not None:
            y = run(row, *views, **given)
            for name, g in zip(row.args, pullback.of_row(run, row, views, y, arriving.on(backend), given), strict=True):
                if g is not None:
                    parts[f"gradient of {name}"] = Result.of(g)
        return parts

    def wanted() -> dict[str, Wanted]:
        hosts = [x.values for x in xs]
        value = np.broadcast_to(oracle.value(row.name, hosts, given, result), shape)
        parts = {"value": Wanted(value, row.ulp, row.gpu_ulp, 0, scale_of(row, hosts), result)}
        if arriving is None:
            return parts
        wide = [x.astype(LONG) if x.dtype.kind == "f" else x for x in hosts]

        def function(*args: Array) -> Array:
            return np.asarray(oracle.VALUES[row.name](*args, **given))

        for index, (name, text) in enumerate(zip(row.args, row.gradients, strict=True)):
            if text is not None:
                slope, known = partial(function, wide, index)
                g = arriving.values.astype(LONG)
                parts[f"gradient of {name}"] = Wanted(g * slope, GRADIENT_ULP, None, GRADIENT_STEPS, _size(row, index, wide, g),
                                                      known=known, differences=True)  # fmt: skip
        return parts

    main = found[next(letter for letter in "fnib" if letter in found)]
    return Trial(row.name, main, what, xs, call, wanted, elementwise=True)


def _size(row: Row, index: int, wide: Sequence[Array], g: Array) -> Array:
    """The magnitude a gradient counts its error at: what arrives, at the largest other argument it is multiplied with."""
    products = row.name.startswith("normalize") or row.name in ("standardize", "multiply_add")
    if products and "g" in gradient_row(row, index).args:
        return np.asarray(np.abs(g) * max(float(np.max(np.abs(x))) for x in wide) ** 2)
    return np.asarray(np.abs(g))


def _apart(rng: np.random.Generator, shape: Shape) -> Array:
    """Numbers of (0.5, 2) no two of which are near: what is chosen among them stays chosen."""
    count = int(np.prod(shape))
    return rng.permutation(np.linspace(0.5, 2, count)).reshape(shape)


def reduction_trials(row: Reduction, dtype: DType, stress: bool) -> Iterator[Trial]:
    """Each set of axes in turn through the layouts, long and odd lengths, and gradients."""
    if not takes(row, dtype):
        return
    rng = generator(f"{row.name} {dtype.name}")
    domain = UNBIASED.get(row.name, (-4.0, 4.0))
    for number, layout in enumerate(LAYOUTS):
        for k in range(3):
            axes: Shape = AXES[(2 * number + k) % len(AXES)]
            x = drawn(rng, dtype, layout, BLOCK, domain)
            yield _reduction_trial(row, x, axes, OUTPUTS[number % len(OUTPUTS)], bool(number % 2), rng, False)
    for size in SIZES if stress else (1, 257, 1025):
        long: tuple[tuple[Shape, Shape], ...] = (
            ((size,), (0,)),
            ((3, size), (1,)),
            ((size, 3), (0,)),
            ((2, size), (0, 1)),
        )
        for shape, axes in long:
            x = drawn(rng, dtype, "dense", shape, (0.99, 1.01) if row.name == "prod" else domain)
            yield _reduction_trial(row, x, axes, "dense", False, rng, False)
    if dtype.is_floating and row.name in DIFFERENTIABLE:
        for number, axes in enumerate((*AXES, ())):
            if axes or row.name != "moments":
                x = laid(rng, dtype, ("dense", "transposed", "stepped", "flipped")[number % 4], _apart(rng, (3, 4, 5)))
                yield _reduction_trial(row, x, axes, "dense", False, rng, True)
    if stress and dtype.is_floating and row.name not in ("prod", "moments"):
        rows = np.array(
            [[1, np.nan, 3, np.inf], [np.inf, 1, 2, -1], [-np.inf] * 4, [np.inf, -np.inf, 0, 0], [0.0, -0.0, 0, 0]]
        )
        yield _reduction_trial(row, laid(rng, dtype, "transposed", rows), (1,), "dense", False, rng, False)


def _reduction_trial(row: Reduction, x: Laid, axes: tuple[int, ...], guarded: str, keepdims: bool, rng: np.random.Generator,
                     differentiated: bool) -> Trial:  # fmt: skip
    dtypes = reduced_dtypes(row, x.dtype)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
    arriving = [drawn(rng, d, "dense", shape, (-1.0, 1.0)) for d in dtypes] if differentiated else []

    def call(backend: ComputeBackend) -> dict[str, Result]:
        view = x.on(backend)
        outs = [Output(backend, d, shape, guarded) for d in dtypes]
        views = tuple(out.view for out in outs)
        run(row, view, axes=axes, keepdims=keepdims, out=views if len(views) > 1 else views[0])
        parts = {
            _part("value", i): Result(out.read(row.name), d)
            for i, (out, d) in enumerate(zip(outs, dtypes, strict=True))
        }
        if arriving:
            y = run(row, view, axes=axes)
            outputs = y if isinstance(y, tuple) else (y,)
            g = pullback.of_reduction(run, row, view, outputs, [g.on(backend) for g in arriving], axes)
            parts["gradient of x"] = Result.of(g)
        return parts

    def wanted() -> dict[str, Wanted]:
        expected = oracle.reduction(row.name, x.values, axes, keepdims)
        values = expected if isinstance(expected, tuple) else (expected,)
        scales = reduction_scales(row, x.values, axes, keepdims)
        parts = {
            _part("value", i): Wanted(value, row.ulp, row.gpu_ulp, 0, scale if d.is_floating else None, d)
            for i, (value, scale, d) in enumerate(zip(values, scales, dtypes, strict=True))
        }
        if arriving:
            total: Any = 0
            for i, g in enumerate(arriving):

                def function(v: Array, i: int = i) -> Array:
                    y = oracle.reduction(row.name, v, axes)
                    return np.asarray(y[i] if isinstance(y, tuple) else y)

                step = (
                    2.0**-20
                    if row.name in ("max", "min", "norm_inf")
                    else 1.0
                    if row.name in ("sum", "mean", "prod")
                    else 2.0**-9
                )
                total = total + adjoint(function, [x.values], 0, g.values, step)
            size = max([1.0, *(float(np.max(np.abs(g.values))) for g in arriving)])
            parts["gradient of x"] = Wanted(total, GRADIENT_ULP, None, 24, size, differences=True)
        return parts

    what = f"{x} axes {axes}" + (" keepdims" if keepdims else "")
    return Trial(row.name, x.dtype, what, [x], call, wanted)


def _part(name: str, output: int) -> str:
    return name if output == 0 else f"{name} {output + 1}"


def update_trials(row: Update, dtype: DType, stress: bool) -> Iterator[Trial]:
    """One step from a random state, in every layout; half-precision weights have float32 slots."""
    if not dtype.is_floating:
        return
    rng = generator(f"{row.name} {dtype.name}")
    slot = dtype if dtype.itemsize >= 4 else BY_NAME["float32"]
    shapes: list[tuple[str, Shape]] = [
        (layout, GRID) for layout in ("dense", "transposed", "stepped", "pitched", "offset", "flipped")
    ]
    shapes += [("dense", (n,)) for n in (SIZES if stress else (1, 1037))]
    for layout, shape in shapes:
        arrays = []
        for name, letter in zip(row.arrays, row.letters, strict=True):
            own = slot if letter == "s" else dtype
            three = Laid(own, "dense", (), (), 0, host(np.full(1, 3.0), own), host(np.array(3.0), own))
            arrays.append(three if name in row.zero_d else drawn(rng, own, layout, shape, slot_domain(name)))
        yield _update_trial(row, dtype, arrays)


def _update_trial(row: Update, dtype: DType, arrays: list[Laid]) -> Trial:
    given = update_scalars(row)

    def call(backend: ComputeBackend) -> dict[str, Result]:
        views = [x.on(backend) for x in arrays]
        run_update(row, [tuple(views)], given)
        return {name: Result.of(view) for name, view in zip(row.arrays, views, strict=True)}

    def wanted() -> dict[str, Wanted]:
        before = {name: x.values for name, x in zip(row.arrays, arrays, strict=True)}
        after = oracle_updates.update(row.name, before, given)
        return {
            name: Wanted(after[name], 4, 16, 0, 4.0, x.dtype)
            if name in row.written
            else Wanted(x.values, dtype=x.dtype)
            for name, x in zip(row.arrays, arrays, strict=True)
        }

    return Trial(row.name, dtype, str(arrays[0]), arrays, call, wanted, elementwise=True)
