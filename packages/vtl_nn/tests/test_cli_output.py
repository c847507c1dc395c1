"""What the command does where nobody can read what it has to say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = ["train", "shapes", "--subset", "8", "--epochs", "1", "--device", "cpu"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize(("target", "said"), [("/dev/full", "No space left"), ("&-", "standard output is closed")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_result_that_cannot_be_written_is_an_error_of_one_line(target, said, unbuffered):
    if target == "/dev/full" and not Path(target).exists():
        pytest.skip("this system has no /dev/full")
    command = f'"{sys.executable}" -m vtl_nn.cli {" ".join(SMALL)} --json >{target}'
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, env=environment)

    assert result.returncode == 1
    assert result.stderr.startswith("vtl: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_who_reads_no_further_is_told_nothing():
    """`vtl train ... | head -1`."""
    with subprocess.Popen(
        [sys.executable, "-m", "vtl_nn.cli", *SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(60) == 141
    assert "Broken pipe" not in said
    assert "Traceback" not in said
