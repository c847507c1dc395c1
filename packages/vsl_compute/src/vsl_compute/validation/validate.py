"""Every op on the user's own device, compared with its independent meaning or with another device."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

import numpy as np

from .. import registry
from .._version import __version__
from ..backend import ComputeBackend
from ..dtypes import ALL, BY_NAME, DType, dtype_of
from ..errors import AttributeValueError, DeviceLostError, DTypeError, UnsupportedError
from ..ops.op import Op
from ..ops.table import OPS
from ..rows.elementwise import ROWS
from ..rows.reductions import REDUCTIONS
from ..rows.row import Reduction, Row, Update
from ..rows.updates import UPDATES
from .report import Finding, Report, ordered
from .trial import Judgement, Trial, judge
from .trials import reduction_trials, row_trials, update_trials
from .trials_ops import op_trials

Entry = Row | Reduction | Op | Update
Progress = Callable[[int, int, str], None]  # ops done, of how many, the next one's name
DEFAULT = ("float32", "int32", "bool")
SHORT = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    **{f"{k[0]}{n}": f"{k}{n}" for k in ("int", "uint") for n in (8, 16, 32, 64)},
}
NOT_JUDGED = ("empty",)  # its contents are undefined
KINDS: dict[type, str] = {Row: "row", Reduction: "reduction", Update: "update"}


def validate(
    spec: str = "auto",
    against: str | None = None,
    dtypes: Sequence[str | DType] | None = None,
    stress: bool = False,
    progress: Progress | None = None,
    ops: Sequence[str] | None = None,
) -> Report:
    """Run every row, reduction, primitive, composite and update on a device, gradients too, and judge each result.

    Random inputs of odd sizes in strided, broadcast and reversed layouts; the truth is the float64 or longdouble
    oracle, gradients are differences of it. With `against`, another device's results on the same inputs stand in the
    truth's place, and the errors allowed to both are added. `dtypes` are names ("float32" or "f32"; None is float32,
    int32 and bool); `stress` adds sizes from 1 to 4097, long thin shapes, NaN and infinities. `progress(done, count,
    name)` is called before each op. `ops` names the only ones to run. An op that raises has failed, and the run goes on.

    Errors:  UnavailableError if a device cannot be opened; DTypeError for a name that is no dtype, or if no op takes it;
             UnsupportedError for one that is no op; DeviceLostError
    Cost:    10 to 60 s on a CPU for the defaults
    """
    backend = registry.get(spec)
    other = None if against is None else registry.get(against)
    if other is backend:
        raise AttributeValueError(
            f"validate: {spec!r} and against={against!r} are one device; leave against out for the oracle"
        )
    chosen = _dtypes(dtypes)
    began = time.perf_counter()
    tables: tuple[Sequence[Entry], ...] = (ROWS, REDUCTIONS, OPS, UPDATES)
    entries = [entry for table in tables for entry in table if entry.name not in NOT_JUDGED]
    if ops is not None:
        entries = _named(entries, (ops,) if isinstance(ops, str) else ops)
    rows: list[Finding] = []
    for number, entry in enumerate(entries):
        if progress is not None:
            progress(number, len(entries), entry.name)
        with np.errstate(all="ignore"):
            for dtype in chosen:
                rows += _findings(entry, dtype, backend, other, stress)
    if not rows:
        names, taken = (", ".join(each) for each in ([e.name for e in entries], [d.name for d in chosen]))
        raise DTypeError(f"validate: {names or 'no op'} takes none of {taken}; nothing was compared")
    versions = {"vsl-compute": __version__, "numpy": np.__version__, "Python": platform.python_version(),
                platform.system(): platform.release()}  # fmt: skip
    return Report(backend.info, other.info if other else None, tuple(d.name for d in chosen), stress, versions,
                  time.perf_counter() - began, ordered(rows))  # fmt: skip


def _dtypes(given: Sequence[str | DType] | None) -> tuple[DType, ...]:
    names = DEFAULT if given is None else (given,) if isinstance(given, str | DType) else given
    chosen = {dtype_of(SHORT.get(name, name) if isinstance(name, str) else name) for name in names}
    if not chosen:
        raise DTypeError(f"validate: dtypes is empty; name some of {', '.join(BY_NAME)}, or leave it out")
    return tuple(d for d in ALL if d in chosen)


def _named(entries: Sequence[Entry], names: Sequence[str]) -> list[Entry]:
    known = {entry.name for entry in entries}
    for name in names:
        if name not in known:
            near = ", ".join(get_close_matches(name, known)) or "see vsl_compute.ops.table.TABLE"
            raise UnsupportedError(f"validate: no op is called {name!r}; did you mean {near}?")
    return [entry for entry in entries if entry.name in names]


def _trials(entry: Entry, dtype: DType, stress: bool) -> Iterator[Trial]:
    if isinstance(entry, Row):
        return row_trials(entry, dtype, stress)
    if isinstance(entry, Reduction):
        return reduction_trials(entry, dtype, stress)
    return op_trials(entry, dtype, stress) if isinstance(entry, Op) else update_trials(entry, dtype, stress)


def _kind(entry: Entry) -> str:
    return KINDS.get(type(entry)) or (
        "primitive" if isinstance(entry, Op) and entry.launch is not None else "composite"
    )


def _declared(entry: Entry, dtype: DType, backend: ComputeBackend) -> str:
    """Why a device says it cannot run this op in this dtype; empty if it says that it can."""
    if isinstance(entry, Row):
        able = backend.supports_row(entry, dtype)
    elif isinstance(entry, Op) and entry.primitive:
        able = backend.supports_primitive(entry.primitive, dtype)
    else:
        able = dtype in backend.capabilities.functions
    return "" if able else f"{backend.spec} declares no {entry.name} for {dtype.name}"


def _findings(
    entry: Entry, dtype: DType, backend: ComputeBackend, other: ComputeBackend | None, stress: bool
) -> list[Finding]:
    """The parts of one op in one dtype; none if the op does not take the dtype."""
    blank = Finding(entry.name, _kind(entry), "value", dtype.name, "unsupported")
    refusal = ""
    parts: dict[str, Finding] = {}
    for trial in _trials(entry, dtype, stress):
        declared = _declared(entry, dtype, backend) or (_declared(entry, dtype, other) if other else "")
        if declared:
            return [replace(blank, reason=declared)]
        try:
            judgements = _judgements(trial, backend, other)
        except UnsupportedError as error:
            refusal = _line(error)
            if isinstance(entry, Row):
                judgements = [
                    Judgement("value", np.inf, 0, inputs=trial.what, reason=f"declared, but refused: {refusal}")
                ]
            else:
                continue
        for judgement in judgements:
            parts[judgement.part] = _worse(
                parts.get(judgement.part, replace(blank, part=judgement.part, verdict="pass")), judgement
            )
    if not parts and refusal:
        return [replace(blank, reason=refusal)]
    return list(parts.values())


def _judgements(trial: Trial, backend: ComputeBackend, other: ComputeBackend | None) -> list[Judgement]:
    """Run a trial; what a backend raises or writes outside its output is a judgement too."""
    wanted = trial.wanted()
    try:
        got = trial.run(backend)
    except (UnsupportedError, DeviceLostError):
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, the report names it, and the next op is tried
        return [Judgement("value", np.inf, 0, inputs=trial.what, reason=_line(error))]
    if other is None:
        return [judge(trial, part, result, wanted[part], backend) for part, result in got.items()]
    reference = trial.run(other)
    return [judge(trial, part, result, wanted[part], backend, (other, reference[part])) for part, result in got.items()]


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _worse(so_far: Finding, judgement: Judgement) -> Finding:
    """Add a judgement to a finding, which keeps the one that comes nearest to, or furthest beyond, what is allowed."""
    failed = bool(judgement.wrong) or bool(judgement.reason)
    counted = replace(
        so_far, trials=so_far.trials + 1, elements=so_far.elements + judgement.elements, wrong=so_far.wrong + judgement.wrong,
        verdict="fail" if failed else so_far.verdict,
    )  # fmt: skip
    share = so_far.ulp / so_far.tolerance if so_far.tolerance else (np.inf if so_far.ulp else 0.0)
    if so_far.trials and judgement.share <= share:
        return counted
    return replace(counted, ulp=judgement.ulp, tolerance=judgement.tolerance, index=judgement.index, got=judgement.got,
                   expected=judgement.expected, inputs=judgement.inputs, reason=judgement.reason)  # fmt: skip
