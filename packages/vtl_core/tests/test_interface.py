"""vtl-core refuses a vsl-compute that speaks another interface."""

from __future__ import annotations

import subprocess
import sys

import pytest


def import_with(planted: str) -> subprocess.CompletedProcess[str]:
    """Import vtl_core in a fresh process where vsl-compute says it speaks `planted`."""
    script = f"import vsl_compute._interface as i; i.PROVIDES['vsl.compute'] = '{planted}'\nimport vtl_core"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("planted", ["2.0", "0.9"])
def test_import_fails_when_vsl_compute_speaks_another_interface(planted):
    result = import_with(planted)

    assert result.returncode == 1
    assert "InterfaceError: vtl-core " in result.stderr
    assert "needs interface vsl.compute 1.1 (>= 1.1, < 2.0), but the installed vsl-compute" in result.stderr
    assert f"speaks {planted}" in result.stderr
    assert "python -m pip install --upgrade vtl-core vsl-compute" in result.stderr


def test_import_accepts_a_later_minor():
    assert import_with("1.7").returncode == 0
