"""Numbers and names that are written twice must agree: sibling pins, interfaces, extras, licences, tool versions."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version


@dataclass
class Package:
    """One of the four, as its files describe it."""

    path: Path
    project: dict[str, Any]
    version: Version
    provides: dict[str, str]
    requires: dict[str, str]

    @property
    def name(self) -> str:
        """The distribution's name."""
        return str(self.project["name"])


def constants(path: Path) -> dict[str, Any]:
    """The literal assignments of a module, read without running it."""
    found: dict[str, Any] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                with contextlib.suppress(ValueError):  # not a literal
                    found[target.id] = ast.literal_eval(node.value)
    return found


def read(path: Path) -> Package:
    """Read a package's pyproject.toml, _version.py and _interface.py."""
    project = tomllib.loads((path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = path / "src" / path.name
    interface = constants(source / "_interface.py")
    version = Version(constants(source / "_version.py")["__version__"])
    return Package(path, project, version, interface["PROVIDES"], interface.get("REQUIRES", {}))


def pin_findings(packages: dict[str, Package]) -> list[str]:
    """Sibling pins: an upper bound, and the tree's own version inside."""
    wrong = []
    for package in packages.values():
        for requirement in map(Requirement, package.project["dependencies"]):
            sibling = packages.get(requirement.name)
            if sibling is None:
                continue
            if requirement.specifier.contains("9999"):
                wrong.append(f"{package.name}: {requirement}: a sibling's pin needs an upper bound")
            if sibling.version not in requirement.specifier:
                wrong.append(f"{package.name}: {requirement}: but the tree has {sibling.name} {sibling.version}")
    return wrong


def interface_findings(packages: dict[str, Package]) -> list[str]:
    """Interface constants: what is required is provided, by a package that is a dependency."""
    wrong = []
    for package in packages.values():
        direct = {Requirement(text).name for text in package.project["dependencies"]}
        provided = {key: (value, owner) for owner in packages.values() for key, value in owner.provides.items()}
        for interface, wanted in package.requires.items():
            found, owner = provided.get(interface, (None, None))
            if found is None or owner is None:
                wrong.append(f"{package.name}: requires {interface} {wanted}, which nobody provides")
                continue
            major, minor = map(int, wanted.split("."))
            if int(found.split(".")[0]) != major or int(found.split(".")[1]) < minor:
                wrong.append(f"{package.name}: requires {interface} {wanted}, but {owner.name} provides {found}")
            if owner.name not in direct:
                wrong.append(f"{package.name}: requires {interface}, but does not depend on {owner.name}")
    return wrong


def extra_findings(packages: dict[str, Package]) -> list[str]:
    """Extras of vsl-compute reach the packages above it."""
    wrong = []
    extras = {name: package.project.get("optional-dependencies", {}) for name, package in packages.items()}
    for upper, lower in (("vtl-core", "vsl-compute"), ("vtl-nn", "vtl-core")):
        for extra in extras[lower]:
            if extras[upper].get(extra) != [f"{lower}[{extra}]"]:
                wrong.append(f"{upper}: extra {extra} should be forwarded as {lower}[{extra}]")
    return wrong


def copy_findings(root: Path, packages: dict[str, Package]) -> list[str]:
    """Licence texts are the root's; the tools of pre-commit are those of the lint session."""
    licence = (root / "LICENSE").read_text(encoding="utf-8")
    wrong = [
        f"{package.name}: LICENSE differs from the root's"
        for package in packages.values()
        if (package.path / "LICENSE").read_text(encoding="utf-8") != licence
    ]
    groups = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    pinned = dict(text.split("==") for name in ("lint", "types") for text in groups[name] if "==" in text)
    hooks = (root / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    for tool, repository in (("ruff", "ruff-pre-commit"), ("mypy", "mirrors-mypy"), ("codespell", "codespell")):
        found = re.search(rf"/{repository}\n\s+rev: v(\S+)", hooks)
        if found is None or found[1] != pinned[tool]:
            wrong.append(f".pre-commit-config.yaml: {tool} {found and found[1]}, but pyproject.toml has {pinned[tool]}")
    boot = constants(root / "run.py")["REQUIREMENTS"]
    block = (root / "noxfile.py").read_text(encoding="utf-8").partition('"""')[0]
    wrong += [f"noxfile.py: its script block lacks run.py's {text}" for text in boot if f'"{text}"' not in block]
    return wrong


def findings(root: Path) -> list[str]:
    """What does not agree, a line each."""
    read_all = [read(path.parent) for path in sorted(root.glob("packages/*/pyproject.toml"))]
    packages = {package.name: package for package in read_all}
    return [
        *pin_findings(packages),
        *interface_findings(packages),
        *extra_findings(packages),
        *copy_findings(root, packages),
    ]


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    wrong = findings(Path(__file__).resolve().parents[1])
    print(*wrong, f"pins: {len(wrong)} findings", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
