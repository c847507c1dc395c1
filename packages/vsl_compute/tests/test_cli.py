"""The command `vsl`: what it prints, and that an error is one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vsl_compute import cli
from vsl_compute.errors import UnavailableError


def test_devices_lists_the_cpu(capsys):
    """As text and as JSON."""
    assert cli.main(["devices"]) == 0
    assert "cpu:0" in capsys.readouterr().out
    assert cli.main(["devices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["spec"] == "cpu:0"


def test_doctor_says_of_each_backend_what_it_needs(capsys):
    """Absent backends are no failure; a broken installation is."""
    assert cli.main(["doctor", "--json"]) == 0
    rows = {row["part"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["cpu"]["state"] == "ok"
    assert {"cuda", "vulkan", "opencl"} <= rows.keys()
    assert all(row["detail"] for row in rows.values())


def test_an_error_is_one_line_and_a_traceback_only_with_debug(capsys, monkeypatch):
    """Exit code not 0."""

    def fail():
        raise UnavailableError("auto: no device")

    monkeypatch.setattr(cli.registry, "devices", fail)
    assert cli.main(["devices"]) == 1
    assert capsys.readouterr().err == "vsl: auto: no device\n"
    with pytest.raises(UnavailableError):
        cli.main(["devices", "--debug"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "COMMAND"),
        (["nope"], 2, "invalid choice: 'nope'"),
        (["devices", "--fast"], 2, "unrecognized arguments: --fast; see vsl devices --help"),
        (["conformance", "--backend", "nope"], 1, "device 'nope': no such backend"),
        (["conformance", "--backend", "cpu:7"], 1, "there is one CPU device"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(capfd, arguments, code, message):
    try:
        found = cli.main(arguments)
    except SystemExit as left:
        found = left.code
    out, err = capfd.readouterr()

    assert (found, out) == (code, "")
    assert err.startswith("vsl: ")
    assert message in err
    assert err.count("\n") == 1


def test_an_unknown_command_is_refused():
    """Exit code 2, by argparse."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(["devcies"])
    assert stopped.value.code == 2


@pytest.mark.parametrize(("target", "said"), [("/dev/full", "No space left"), ("&-", "standard output is closed")])
def test_output_that_cannot_be_written_is_an_error_of_one_line(target, said):
    """Buffered or not; exit code not 0, for what was asked has not been done."""
    if target == "/dev/full" and not Path(target).exists():
        pytest.skip("this system has no /dev/full")
    command = f'"{sys.executable}" -m vsl_compute.cli devices --json >{target}'
    run = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert said in run.stderr


def test_conformance_says_in_json_why_it_did_not_begin():
    """One document with the reason, exit code not 0."""
    command = [sys.executable, "-m", "vsl_compute.cli", "conformance", "--backend", "nope", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(run.stdout)
    assert run.returncode == report["exit"] != 0
    assert report["error"].startswith("UnavailableError: --backend nope")
