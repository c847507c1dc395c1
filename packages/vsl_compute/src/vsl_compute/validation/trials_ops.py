"""Trials of primitives and composites: values and the backward of each, in several layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backend import ComputeBackend
from ..dispatch import run
from ..dtypes import BY_NAME, DType, float32, float64, int64
from ..errors import UnsupportedError
from ..ops.op import Op
from . import pullback
from .cases_ops import CASES, VALUES, OpCase, Options, Statistic, stressing, windows
from .derivative import adjoint
from .inputs import Laid, drawn, laid
from .meanings import MEANINGS, Meaning
from .trial import Result, Trial, Wanted
from .trials import generator
from .wide import Array

ROUNDS = ("dense", "transposed", "stepped", "flipped")  # the layouts a case's arguments take, one after the other
GRADIENT_ULP, GRADIENT_STEPS = 32.0, 24.0  # at the largest gradient: a backward is a dozen sums


def cases_of(op: Op, stress: bool) -> list[OpCase]:
    """Every case of an op."""
    every = (*CASES, *VALUES, *windows(), *(stressing() if stress else ()))
    return [case for case in every if case[0] == op.name]


def op_trials(op: Op, dtype: DType, stress: bool) -> Iterator[Trial]:
    """Each case in four layouts; a case's values, and so its truth, are the same in all."""
    letters = set(op.signature.inputs) - {"i"}
    if not (dtype.is_floating or (dtype.is_integer and letters <= {"n", "a"} and op.name != "random")):
        return
    rng = generator(f"{op.name} {dtype.name}")
    for name, options, makers, outputs in cases_of(op, stress):
        if name == "astype" and outputs:  # to float64, which VALUES' dtypes and gradients stand for
            options = options | {"dtype": dtype.name}
        if name == "random" and options["kind"] != "bits":
            options = options | {"dtype": dtype.name}
        hosts: list[Array | None] = []
        dtypes: list[DType] = []
        for maker in makers:
            values = None if maker is None else maker(rng, *hosts) if isinstance(maker, Statistic) else maker(rng)
            dtypes.append(_dtype_of(maker, values, dtype))
            hosts.append(values if values is None else _rounded(rng, values, dtypes[-1]))
        yield from _trials(op, dtype, options, dtypes, hosts, outputs, rng)


def _dtype_of(maker: Any, values: Array | None, dtype: DType) -> DType:
    """Indices are int64, statistics float32 at least, all else is the dtype under test."""
    if values is not None and values.dtype.kind in "iu":
        return int64
    if isinstance(maker, Statistic) and not maker.narrow:
        return float64 if dtype is float64 else float32
    return dtype


def _rounded(rng: np.random.Generator, values: Array, dtype: DType) -> Array:
    scaled = np.rint(values * 40) if dtype.is_integer and values.dtype.kind == "f" else values
    if dtype.kind == "u":
        scaled = np.abs(scaled)
    return laid(rng, dtype, "dense", scaled).values


def _trials(op: Op, dtype: DType, options: Options, dtypes: Sequence[DType], hosts: Sequence[Array | None], outputs: int,
            rng: np.random.Generator) -> Iterator[Trial]:  # fmt: skip
    random_normal = op.name == "random" and options["kind"] == "normal"
    meaning = MEANINGS["random normal" if random_normal else op.name]
    results = meaning.value(*hosts, **options)
    differentiated = outputs if dtype.is_floating and op.backward is not None else 0
    covectors = [
        drawn(rng, _saved(op, k, dtype), "dense", np.shape(results[k]), (-1.0, 1.0)) for k in range(differentiated)
    ]
    truth: dict[str, Wanted] = {}  # the same for each layout: made once, when first asked for

    def wanted() -> dict[str, Wanted]:
        if not truth:
            truth.update(_values(op, meaning, results, dtype, options, hosts))
            if covectors:
                truth.update(_gradients(op, meaning, hosts, options, covectors))
        return truth

    for number, layout in enumerate(ROUNDS):
        xs = [
            None if x is None else laid(rng, own, layout if x.ndim > 1 or number % 2 else "dense", x)
            for own, x in zip(dtypes, hosts, strict=True)
        ]
        yield Trial(op.name, dtype, _text(xs, options), xs, _call(op, dtype, options, xs, covectors), wanted)


def _text(xs: Sequence[Laid | None], options: Options) -> str:
    named = "".join(f" {key}={value}" for key, value in options.items() if key not in ("key", "counter"))
    return ", ".join("none" if x is None else str(x) for x in xs) + named


def _saved(op: Op, output: int, dtype: DType) -> DType:
    """The dtype of an output: statistics that an op saves are float32 at least."""
    return dtype if output == 0 or dtype.itemsize >= 4 else float32


def _call(op: Op, dtype: DType, options: Options, xs: Sequence[Laid | None], covectors: Sequence[Laid]) -> Any:
    def call(backend: ComputeBackend) -> dict[str, Result]:
        target = options.get("dtype", dtype.name)
        if op.name == "astype" and BY_NAME[target] not in backend.capabilities.functions:
            raise UnsupportedError(f"{backend.spec}: does not compute in {target}")
        views = [None if x is None else x.on(backend) for x in xs]
        y = run(op, *views, **options)
        outputs = y if isinstance(y, tuple) else (y,)
        parts = {_part(op, k): Result.of(view) for k, view in enumerate(outputs)}
        for k, covector in enumerate(covectors):
            grads: list[Any] = [None] * len(outputs)
            if k:  # a saved output's gradient may be missing; the first one's is zeros where nothing flows
                grads[0] = _zeros(covectors[0]).on(backend)
            grads[k] = covector.on(backend)
            for name, g in zip(
                _names(op, len(views)), pullback.of_op(run, op, views, outputs, grads, options), strict=True
            ):
                if g is not None:
                    parts[_gradient(name, op, k)] = Result.of(g)
        return parts

    return call


def _zeros(like: Laid) -> Laid:
    return replace(like, base=np.zeros_like(like.base), values=np.zeros_like(like.values))


def _names(op: Op, count: int) -> Sequence[str]:
    return [f"{op.names[0]}[{i}]" for i in range(count)] if op.is_variadic else op.names[:count]


def _part(op: Op, output: int) -> str:
    return "value" if output == 0 else f"value {op.outputs[output]}"


def _gradient(name: str, op: Op, output: int) -> str:
    return f"gradient of {name}" if output == 0 else f"gradient of {name} from {op.outputs[output]}"


def _values(op: Op, meaning: Meaning, results: Sequence[Any], dtype: DType, options: Options, hosts: Sequence[Array | None]
            ) -> dict[str, Wanted]:  # fmt: skip
    scales = meaning.scales(*hosts, **options) if meaning.scales is not None else ()
    parts = {}
    for k, result in enumerate(results):
        parts[_part(op, k)] = Wanted(
            np.asarray(result),
            meaning.ulps[min(k, len(meaning.ulps) - 1)],
            steps=meaning.steps_of(k),
            scale=scales[k] if k < len(scales) else None,
            dtype=_kept(op, dtype) if k == 0 and dtype.is_floating and "dtype" not in op.attributes else None,
        )
    return parts


def _kept(op: Op, dtype: DType) -> DType | None:
    """The dtype of the first output where that is an argument's; beside floating numbers n is a statistic, float32 at least."""
    letter, inputs = op.signature.outputs[0], op.signature.inputs
    if letter not in inputs:
        return None
    return float32 if letter == "n" and "f" in inputs and dtype.itemsize < 4 else dtype


def _gradients(
    op: Op, meaning: Meaning, hosts: Sequence[Array | None], options: Options, covectors: Sequence[Laid]
) -> dict[str, Wanted]:
    """Differences of the meaning, judged at the largest gradient of the argument."""
    parts = {}
    for k, covector in enumerate(covectors):

        def function(*xs: Array, k: int = k) -> Array:
            return np.asarray(meaning.value(*xs, **options)[k])

        for index, (name, x) in enumerate(zip(_names(op, len(hosts)), hosts, strict=True)):
            if x is not None and x.dtype.kind == "f":
                slope = adjoint(function, hosts, index, covector.values, meaning.move)
                size = max(float(np.max(np.abs(slope), initial=0)), float(np.max(np.abs(covector.values), initial=0)))
                parts[_gradient(name, op, k)] = Wanted(
                    slope, GRADIENT_ULP, None, GRADIENT_STEPS, size, differences=True
                )
    return parts
