"""docs/add-a-layer.md: its examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "add-a-layer.md"


def test_the_layer_of_the_page_passes_the_gradient_check_of_the_page(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    run = [sys.executable, "-W", "error", "-"]

    done = subprocess.run(run, input=code, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 1e-7
