"""The command `vsl`: what it prints, and that an error is one line."""

from __future__ import annotations

import json

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


def test_an_unknown_command_is_refused():
    """Exit code 2, by argparse."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(["devcies"])
    assert stopped.value.code == 2
