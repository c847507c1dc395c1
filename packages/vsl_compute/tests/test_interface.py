"""The import-time check of interface versions, and of NumPy's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vsl_compute.errors import InterfaceError
from vsl_compute.interface import require

WHO = {"by": "vtl-core 0.4.0", "provider": "vsl-compute 0.3.0"}


@pytest.mark.parametrize("found", ["1.2", "1.3", "1.10"])
def test_the_same_major_and_this_minor_or_a_later_one_fits(found):
    require({"vsl.compute": found}, {"vsl.compute": "1.2"}, **WHO)


@pytest.mark.parametrize(
    ("found", "finding"),
    [("2.0", "speaks 2.0: it is newer"), ("1.1", "speaks 1.1: it is older"), ("0.9", "speaks 0.9: it is older")],
)
def test_another_major_or_an_older_minor_names_both_versions_and_the_command(found, finding):
    with pytest.raises(InterfaceError) as caught:
        require({"vsl.compute": found}, {"vsl.compute": "1.2"}, **WHO)

    assert str(caught.value) == (
        "vtl-core 0.4.0 needs interface vsl.compute 1.2 (>= 1.2, < 2.0), "
        f"but the installed vsl-compute 0.3.0 {finding}. Run: python -m pip install --upgrade vtl-core vsl-compute"
    )


def test_an_interface_that_nobody_provides_is_named():
    with pytest.raises(InterfaceError, match=r"needs interface vtl\.data 1\.0 .* does not have it"):
        require({"vsl.compute": "1.0"}, {"vtl.data": "1.0"}, **WHO)


def test_an_interface_error_is_an_import_error():
    assert issubclass(InterfaceError, ImportError)


def test_numpy_1_is_refused_at_import_with_the_command():
    script = "import numpy; numpy.__version__ = '1.26.4'\nimport vsl_compute"

    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert (
        "needs numpy >= 2.0, but numpy 1.26.4 is installed. Run: python -m pip install --upgrade numpy" in result.stderr
    )
