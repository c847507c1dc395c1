"""The command `vsl`: devices, doctor, validate, conformance. Every command has --json, and exits non-zero on failure."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from . import registry
from ._version import __version__
from .errors import VslError


def _devices(arguments: argparse.Namespace) -> int:
    found = registry.devices()
    if arguments.json:
        print(json.dumps([asdict(device) for device in found]))
        return 0
    for device in found:
        print(
            f"{device.spec:10} {device.kind:10} {device.name} ({device.memory_bytes / 2**30:.1f} GiB, {device.driver})"
        )
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import findings

    found = findings()
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in found]))
    else:
        for finding in found:
            print(f"{finding.state:8} {finding.part:12} {finding.detail}")
    return 1 if any(finding.state == "broken" for finding in found) else 0


def _progress(done: int, count: int, name: str) -> None:
    print(f"\r\x1b[K{done + 1}/{count} {name}", end="", file=sys.stderr, flush=True)


def _validate(arguments: argparse.Namespace) -> int:
    from .validation.validate import validate

    shown = sys.stderr is not None and sys.stderr.isatty()
    try:
        report = validate(
            arguments.backend,
            arguments.against,
            arguments.dtype,
            arguments.stress,
            _progress if shown else None,
            arguments.op,
        )
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    ending = Path(arguments.out or "").suffix
    plain = not (arguments.json or arguments.markdown)
    if arguments.json or (plain and ending == ".json"):
        text = report.to_json()
    elif arguments.markdown or (plain and ending == ".md"):
        text = report.to_markdown()
    else:
        text = str(report)
    if arguments.out is None:
        print(text)
    else:
        try:
            Path(arguments.out).write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        except OSError as error:
            print(text)  # a minute's work is not thrown away
            print(f"vsl validate: cannot write {arguments.out}: {error.strerror}; the report is above", file=sys.stderr)
            return 1
        print(report.summary)
    return 0 if report.passed else 1


def _conformance(arguments: argparse.Namespace) -> int:
    if not arguments.json:
        registry.get(arguments.backend)  # what is absent is said in one line, not in pytest's words
    if importlib.util.find_spec("pytest") is None:
        print("vsl conformance: needs pytest; run: python -m pip install pytest", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "pytest", "-q", "-p", "vsl_compute.conformance.plugin", "--pyargs", "vsl_compute.conformance",
               "--backend", arguments.backend, "--overrides", arguments.overrides, "--rootdir", ".", *arguments.pytest]  # fmt: skip
    if arguments.json:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in (run.stdout + run.stderr).splitlines() if line.strip()]
        summary = next((line for line in reversed(lines) if line.startswith("conformance:")), "")
        counts = {
            word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|unsupported|absent|skipped)", summary)
        }
        report = {"backend": arguments.backend, "exit": run.returncode, "summary": summary, "counts": counts}
        if run.returncode and not report["summary"]:  # it did not begin: say why
            report["error"] = (
                lines[-1].strip("! ").removeprefix("_pytest.outcomes.Exit: ") if lines else "pytest said nothing"
            )
        print(json.dumps(report))
        return run.returncode
    return subprocess.run(command, check=False).returncode


class _Parser(argparse.ArgumentParser):
    """argparse, whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"vsl: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse's; but what a subcommand does not know it refuses itself, naming its own help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and " " in self.prog:  # "vsl validate"
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    root = _Parser(prog="vsl", description=__doc__)
    root.add_argument("--version", action="version", version=__version__)
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    for name, function, text in (
        ("devices", _devices, "list every device of every backend"),
        ("doctor", _doctor, "say what is missing, and the command that mends it"),
        ("validate", _validate, "compare every op on a device with the oracle or another device"),
        ("conformance", _conformance, "run the shipped suite on a backend"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        form = command.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print one JSON document")
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        command.set_defaults(function=function)
        if name == "validate":
            form.add_argument("--markdown", action="store_true", help="print a Markdown table, to paste into an issue")
            command.add_argument("--backend", default="auto", help="device spec, such as vulkan:0; auto by default")
            command.add_argument(
                "--against", metavar="SPEC", help="compare with this device, such as cpu, not the oracle"
            )
            command.add_argument("--dtype", nargs="+", metavar="NAME", help="f16 bf16 f32 f64 i8 .. u64 bool")
            command.add_argument("--op", nargs="+", metavar="NAME", help="run these ops only")
            command.add_argument("--stress", action="store_true", help="sizes from 1 to 4097, NaN and infinities too")
            command.add_argument("--out", metavar="FILE", help="write the report there (.md, .json), print its summary")
        if name == "conformance":
            command.add_argument("--backend", default="cpu", help="device spec, such as cpu or vulkan:0")
            command.add_argument(
                "--overrides",
                choices=("on", "off", "both"),
                default="both",
                help="with the backend's own composites, without, or both",
            )
            command.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error is one line on stderr, a traceback with --debug."""
    parsed = parser().parse_args(arguments)
    try:
        if sys.stdout is None:
            raise OSError("standard output is closed; give it a file or a terminal")
        with warnings.catch_warnings():
            if not parsed.debug:
                warnings.showwarning = _said
            code = int(parsed.function(parsed))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _forget_output()
        return 141
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if isinstance(error, OSError):
            _forget_output()
        if parsed.debug:
            raise
        known = isinstance(error, VslError | OSError)
        text = str(error) if known else f"{type(error).__name__}: {' '.join(str(error).split())} (--debug shows where)"
        print(f"vsl: {text}", file=sys.stderr)
        return 1


def _said(message: object, *_: object, **__: object) -> None:
    """A warning without file and line, which say nothing to users of a command."""
    print(f"vsl: {message}", file=sys.stderr)


def _forget_output() -> None:
    """What could not be written is not tried again when Python ends, which would report it a second time."""
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - it is for the rest of the process


if __name__ == "__main__":
    sys.exit(main())
