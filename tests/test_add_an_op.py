"""docs/add-an-op.md: what a reader pastes is right."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import dedent

import numpy as np

from vsl_compute.rows.row import row
from vsl_compute.validation import oracle
from vtl_core.methods.elementwise import Elementwise

PAGE = Path(__file__).resolve().parents[1] / "docs" / "add-an-op.md"
TEXT = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
ROW, MEANING, METHOD = TEXT


def test_the_row_of_the_page_has_the_meaning_of_the_page_and_its_gradient():
    (cube,) = eval(f"({ROW})", {"row": row})  # as it would stand in ROWS
    meanings = eval(f"{{{MEANING}}}")
    x, g = np.random.default_rng(0).uniform(-4, 4, (2, 50))

    assert list(meanings) == [cube.name]
    np.testing.assert_allclose(eval(cube.value, {"x": x}), meanings["cube"](x), rtol=1e-14)
    step = 1e-6
    slope = (meanings["cube"](x + step) - meanings["cube"](x - step)) / (2 * step)
    np.testing.assert_allclose(eval(cube.gradients[0], {"x": x, "g": g}), g * slope, rtol=1e-6, atol=1e-8)


def test_the_method_of_the_page_has_the_shape_of_its_neighbours():
    (function,) = ast.parse(dedent(METHOD)).body

    assert isinstance(function, ast.FunctionDef)
    assert function.name == "cube"
    assert "return unary(ROW['cube'], self)" in ast.unparse(function)
    assert callable(Elementwise.square)


def test_the_page_names_files_that_exist():
    files = re.findall(r"`(packages/[\w/.]+)`", PAGE.read_text(encoding="utf-8"))

    assert len(files) == 3
    assert all((PAGE.parents[1] / file).is_file() for file in files)
    assert oracle.__file__.endswith(files[1])
