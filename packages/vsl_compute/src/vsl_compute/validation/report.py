"""What a validation found, op by op and dtype by dtype: as objects, a terminal table, Markdown and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from ..backend import DeviceInfo

VERDICTS = ("fail", "unsupported", "pass")  # the order in which they are listed
COLUMNS = ("verdict", "kind", "op", "part", "dtype", "worst ULP", "allowed", "where")


@dataclass(frozen=True)
class Finding:
    """One part ("value", "gradient of x") of one op in one dtype: the worst of its trials.

    `ulp` is the largest error relative to what is allowed there, in units in the last place of the dtype at the
    larger of the true value and the row's scale; it is infinite for a NaN that should not be, a wrong integer or a
    result that did not come. `index` is the element, `inputs` what it was made of: the numbers for an elementwise
    op, shapes and layouts for the others.
    """

    op: str
    kind: str
    part: str
    dtype: str
    verdict: str
    ulp: float = 0.0
    tolerance: float = 0.0
    trials: int = 0
    elements: int = 0
    wrong: int = 0
    index: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""
    inputs: str = ""
    reason: str = ""

    @property
    def where(self) -> str:
        """Index, inputs, what came and what should have; the reason where there is no element to show."""
        if self.verdict == "unsupported" or (self.reason and not self.got):
            return f"{self.reason} ({self.inputs})" if self.inputs else self.reason
        if self.ulp == 0:
            return ""
        return f"at {list(self.index)} of {self.inputs}: got {self.got}, expected {self.expected}"


@dataclass(frozen=True)
class Report:
    """All findings of one run of `vsl_compute.validate`, failures first."""

    device: DeviceInfo
    against: DeviceInfo | None
    dtypes: tuple[str, ...]
    stress: bool
    versions: dict[str, str]
    seconds: float
    rows: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """True if nothing failed and something ran: unsupported rows are declared, and no failure."""
        counts = self.counts
        return not counts["fail"] and counts["pass"] > 0

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict."""
        found = Counter(row.verdict for row in self.rows)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def ops(self) -> int:
        """How many ops the rows are of."""
        return len({row.op for row in self.rows})

    @property
    def summary(self) -> str:
        """One line: the verdict, counts, device, driver, versions, seconds."""
        counts = self.counts
        reference = f"against {self.against.spec}" if self.against else "against the oracle"
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            f"{'passed' if self.passed else 'FAILED'}: {self.device.spec} {reference}, {', '.join(self.dtypes)}: "
            f"{counts['pass']} passed, {counts['fail']} failed, {counts['unsupported']} unsupported, {self.ops} ops, "
            f"{sum(row.elements for row in self.rows)} numbers, {self.seconds:.1f} s; "
            f"{self.device.name}, driver {self.device.driver}; {versions}"
        )

    def __str__(self) -> str:
        table = [COLUMNS, *map(_cells, self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS) - 1)]
        lines = [
            "  ".join((*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[-1])) for line in table
        ]
        return "\n".join(line.rstrip() for line in (*lines, "", self.summary))

    def to_markdown(self) -> str:
        """The table and the summary as Markdown, to paste into an issue."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

        rule = ["---"] * len(COLUMNS)
        return "\n".join(
            (f"# vsl validate {self.device.spec}", "", self.summary, "", line(COLUMNS), line(rule), *map(line, map(_cells, self.rows)), "")
        )  # fmt: skip

    def to_json(self) -> str:
        """One JSON document; a ULP that is infinite is null."""
        document: dict[str, Any] = {
            "passed": self.passed,
            "device": asdict(self.device),
            "against": asdict(self.against) if self.against else "oracle",
            "dtypes": self.dtypes,
            "stress": self.stress,
            "versions": self.versions,
            "seconds": round(self.seconds, 3),
            "counts": self.counts,
            "rows": [_plain(row) for row in self.rows],
        }
        return json.dumps(document, indent=1, allow_nan=False)


def _plain(row: Finding) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and not isfinite(v) else v for name, v in asdict(row).items()}


def _cells(row: Finding) -> tuple[str, ...]:
    judged = row.verdict != "unsupported"
    return (
        row.verdict, row.kind, row.op, row.part, row.dtype, f"{row.ulp:.3g}" if judged else "",
        (f"{row.tolerance:.3g}" if row.tolerance else "exact") if judged else "", row.where,
    )  # fmt: skip


def ordered(rows: Sequence[Finding]) -> tuple[Finding, ...]:
    """Failures first, then what is unsupported, then the rest, each in the order of the tables."""
    return tuple(sorted(rows, key=lambda row: VERDICTS.index(row.verdict)))
