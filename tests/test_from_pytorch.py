"""What stands here for PyTorch's names: the errors say it, the page lists it, and all of it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import vsl_compute as vsl
import vtl_core as vtl
import vtl_data as data
import vtl_nn as nn
from vtl_core import elsewhere
from vtl_nn import elsewhere as around

PAGE = Path(__file__).resolve().parents[1] / "docs" / "from-pytorch.md"
TABLES: dict[str, tuple[Any, Mapping[str, str]]] = {
    "torch": (vtl, elsewhere.FUNCTIONS),
    "torch.Tensor": (vtl.ones(3, 4), elsewhere.METHODS),
    "torch.nn": (nn, around.NAMES),
    "torch.nn.functional": (nn.functional, around.FUNCTIONAL),
    "torch.nn.Module": (nn.Linear(4, 3), around.MODULE),
}
NAMES = [(table, name) for table, (_, names) in TABLES.items() for name in names]


def given(folder: Path) -> dict[str, Any]:
    """What the expressions are read beside, fresh."""
    model = nn.Linear(4, 3)
    nn.save(model, str(folder / "model.safetensors"))
    numbers = {"x": vtl.randn(3, 4), "y": vtl.randn(3, 4), "mask": vtl.randn(3, 4) > 0, "array": [1.0, 2.0]}
    integers = {"indices": vtl.tensor([0, 2]), "labels": vtl.tensor([0, 3])}
    packages = {"vtl": vtl, "nn": nn, "data": data, "vsl": vsl}
    return {**packages, **numbers, **integers, "model": model, "name": "part", "training": True}


@pytest.mark.parametrize(("table", "name"), NAMES)
def test_a_name_of_pytorchs_that_is_another_here_is_missing_with_the_other(table, name):
    owner, names = TABLES[table]

    assert not hasattr(owner, name)
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert str(caught.value).endswith(f"has no attribute {name!r}; PyTorch's {name} is {names[name]} here")


@pytest.mark.parametrize(("table", "name"), NAMES)
def test_what_is_written_here_instead_runs(table, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expression = TABLES[table][1][name]
    try:
        eval(expression, given(tmp_path))
    except vtl.UnavailableError:  # of a device that this machine lacks
        assert "cuda" in expression


def test_the_page_lists_exactly_what_the_errors_say():
    found: dict[str, dict[str, str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if row := re.fullmatch(r"\| `(torch[\w.]*)\.(\w+)` \| `(.+)` \|", line):
            found.setdefault(row[1], {})[row[2]] = row[3]

    assert found == {table: dict(names) for table, (_, names) in TABLES.items()}


def test_arguments_of_pytorchs_that_are_none_here_are_refused_with_a_word_about_them():
    with pytest.raises(TypeError, match=r"^sum: .*'dim'; it takes .*axis=None.*; functions name it axis"):
        vtl.sum(vtl.ones(2, 3), dim=1)
    with pytest.raises(
        TypeError, match=r"^ReLU: .*'inplace'; it takes \(\); what comes out is a new tensor: leave it out$"
    ):
        nn.ReLU(inplace=True)
    with pytest.raises(TypeError, match=r"^Dropout: .*'inplace'; it takes \(p=0\.5\); what comes out is a new tensor"):
        nn.Dropout(0.5, inplace=True)
    with pytest.raises(TypeError, match=r"^resnet18: .*'pretrained'; .*; nn\.load_into\(model, file\) reads weights"):
        nn.models.resnet18(pretrained=True)
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in elsewhere.ARGUMENTS if f"`{name}`" not in page] == []


def test_a_property_that_fails_says_why_and_a_name_that_nobody_has_is_pythons_to_say():
    class Net(nn.Module):
        @property
        def float(self):  # a name that MODULE has too
            return self.absent

    with pytest.raises(AttributeError, match=r"^'Net' object has no attribute 'absent'$"):
        Net().float  # noqa: B018  # reading it is the test
    with pytest.raises(AttributeError, match=r"^'Net' object has no attribute 'wrong'$"):
        Net().wrong  # noqa: B018  # likewise
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'wrong'$"):
        vtl.ones(1).wrong  # noqa: B018  # likewise
