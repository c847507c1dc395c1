"""wheels.py FOLDER: build the four wheels, look into them, and install each alone into an empty environment.

Siblings are passed by path: no index is asked for a package of ours, so none can put another in its place.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from pins import Package, read
from readme import examples

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {"vsl-compute": "vsl", "vtl-nn": "vtl"}


def run(*command: str | Path, given: str | None = None) -> None:
    """Run, or stop with the command's own exit code and words."""
    done = subprocess.run([str(word) for word in command], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr)
        sys.exit(f"wheels: {' '.join(map(str, command))}: exit code {done.returncode}")


def build(package: Package, folder: Path) -> Path:
    """Build an sdist, a wheel from it, and check that the wheel carries its types and licence, and no tests."""
    run("uv", "build", "-q", "--no-sources", "-o", folder, package.path)
    module = package.path.name
    (wheel,) = folder.glob(f"{module}-{package.version}-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (f"{module}/py.typed", f"{module}-{package.version}.dist-info/licenses/LICENSE"):
        if wanted not in names:
            sys.exit(f"wheels: {wheel.name} lacks {wanted}")
    if strangers := [name for name in names if not name.startswith((f"{module}/", f"{module}-"))]:
        sys.exit(f"wheels: {wheel.name} has {strangers}")
    return wheel


def closure(package: Package, packages: dict[str, Package]) -> set[str]:
    """A package and the siblings that it needs, theirs too."""
    needed = {package.name}
    for requirement in map(Requirement, package.project["dependencies"]):
        if requirement.name in packages:
            needed |= closure(packages[requirement.name], packages)
    return needed


def try_alone(package: Package, wheels: list[Path]) -> None:
    """Install a package with what it needs and nothing else; import it and use it from the outside."""
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder, "venv")
        run("uv", "venv", "-q", "--python", sys.executable, venv)
        scripts = venv / ("Scripts" if sys.platform == "win32" else "bin")
        python = scripts / "python"
        run("uv", "pip", "install", "-q", "--python", python, *wheels)
        run("uv", "pip", "check", "-q", "--python", python)
        run(python, "-I", "-W", "error", "-c", f"import {package.path.name}")
        if command := COMMANDS.get(package.name):
            run(scripts / command, "--help")
        if package.name == "vsl-compute":
            run(python, "-I", "-W", "error", "-", given=examples(ROOT / "README.md")["compute"])
    print(f"wheels: {package.name} {package.version} works alone, with {len(wheels)} wheel(s) of ours")


def main() -> int:
    """Build all, then try each."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    found = [read(path.parent) for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
    packages = {package.name: package for package in found}
    wheels = {name: build(package, folder) for name, package in packages.items()}
    for package in packages.values():
        try_alone(package, [wheels[name] for name in sorted(closure(package, packages))])
    return 0


if __name__ == "__main__":
    sys.exit(main())
