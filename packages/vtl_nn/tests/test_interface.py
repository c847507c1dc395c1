"""vtl-nn refuses a vtl-core or a vtl-data that speaks another interface."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vtl_nn._interface import REQUIRES


def import_with(module: str, interface: str, planted: str) -> subprocess.CompletedProcess[str]:
    """Import vtl_nn in a fresh process where a sibling says it speaks `planted`."""
    script = f"import {module}._interface as i; i.PROVIDES['{interface}'] = '{planted}'\nimport vtl_nn"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("planted", ["2.0", "0.9"])
@pytest.mark.parametrize(
    ("module", "interface", "distribution"),
    [("vtl_core", "vtl.core", "vtl-core"), ("vtl_data", "vtl.data", "vtl-data")],
)
def test_import_fails_when_a_sibling_speaks_another_interface(module, interface, distribution, planted):
    result = import_with(module, interface, planted)

    assert result.returncode == 1
    needed = REQUIRES[interface]
    assert (
        f"needs interface {interface} {needed} (>= {needed}, < 2.0), but the installed {distribution} " in result.stderr
    )
    assert f"speaks {planted}" in result.stderr
    assert f"python -m pip install --upgrade vtl-nn {distribution}" in result.stderr


def test_import_accepts_a_later_minor():
    assert import_with("vtl_core", "vtl.core", "1.7").returncode == 0
