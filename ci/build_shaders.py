"""Compile the fixed Vulkan kernels: shaders/*.comp into spv/*.spv, with a manifest of what each was made from.

    python ci/build_shaders.py           compile what changed, validate with spirv-val, write the manifest
                                         (--compiler PATH names a glslang that is newer than the system's)
    python ci/build_shaders.py --check   no compiler needed: sources, defines and modules are those of the manifest; where
                                         spirv-val is installed every module passes it

glslangValidator and spirv-val come with `nox -s system` (Debian: glslang-tools, spirv-tools). Users need neither. What uses
matrix units (MATRICES) needs glslang 15.3 and is validated where spirv-val is of 2025.2 or later.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

HOME = Path(__file__).parent.parent / "packages/vsl_compute/src/vsl_compute/backends/vulkan"
SHADERS, SPV = HOME / "shaders", HOME / "spv"
MANIFEST = SPV / "manifest.json"

FMA, MULTIPLY_ADD = "ADDED(s,a,b)=fma(a,b,s)", "ADDED(s,a,b)=((s)+(a)*(b))"
STORED = {  # storage type, bytes, compute type, more
    "f32": ("float", 4, "float", []),
    "f64": ("double", 8, "double", []),
    "f16": ("uint16_t", 2, "float", ["HALF"]),
    "bf16": ("uint16_t", 2, "float", ["BRAIN"]),
    "u8": ("uint8_t", 1, "uint", []),
    "u16": ("uint16_t", 2, "uint", []),
    "u32": ("uint", 4, "uint", []),
    "u64": ("uint64_t", 8, "uint64_t", []),
}
FOUR = {"float": "vec4", "double": "dvec4", "uint16_t": "u16vec4", "uint": "uvec4", "uint64_t": "u64vec4"}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
MATRICES = ("gemm_units.comp",)
VALIDATES_MATRICES = (2025, 2)
INDEX = {"i32": ("int", 4), "i64": ("int64_t", 8)}


def element(name: str) -> list[str]:
    """The defines of a storage type."""
    stored, size, number, more = STORED[name]
    return [f"STORED={stored}", f"SIZE={size}", f"NUMBER={number}", *more]


def variants() -> dict[str, tuple[str, list[str]]]:
    """Every module: its source and its defines."""
    found: dict[str, tuple[str, list[str]]] = {}
    for index, (type_, nbytes) in INDEX.items():
        place = [f"INDEX={type_}", f"INDEX_SIZE={nbytes}"]
        for name in ("u8", "u16", "u32", "u64"):
            found[f"gather_{name}_{index}"] = ("gather.comp", [*element(name), *place])
        for name in ("f32", "f64", "u32", "u64"):
            found[f"scatter_add_{name}_{index}"] = ("scatter_add.comp", [*element(name), *place])
    for name in STORED:
        found[f"fold_{name}"] = ("fold.comp", element(name))
        found[f"fold_chosen_{name}"] = ("fold.comp", [*element(name), "INDEX=int"])
    for name in ("u8", "u16", "u32", "u64"):
        found[f"turn_{name}"] = ("turn.comp", element(name))
        found[f"sort_{name}"] = ("sort.comp", [*element(name), f"KEY={'uint64_t' if name == 'u64' else 'uint'}"])
    found["random_bits_u32"] = ("random.comp", [*element("u32"), "KIND=0"])
    for kind, code in (("uniform", 1), ("normal", 2)):
        for name in ("f32", "f64"):
            found[f"random_{kind}_{name}"] = ("random.comp", [*element(name), f"KIND={code}"])
    for name in ("f32", "f64", "f16", "bf16", "u32", "u64"):
        stored, size, number, _ = STORED[name]
        four = [f"STORED4={FOUR[stored]}", f"NUMBER4={FOUR[number]}", f"SIZE4={4 * size}"]
        sums = f"NUMBER_SIZE={max(4, size)}"
        added = MULTIPLY_ADD if name.startswith("u") else FMA
        for kernel in ("gemm", "gemv"):
            found[f"{kernel}_{name}"] = (f"{kernel}.comp", [*element(name), *four, sums, added])
        found[f"gemm_join_{name}"] = ("gemm_join.comp", [*element(name), sums])
        if number in ("float", "double"):
            held = 8 if number == "double" else 4  # what parts of a sum are kept in
            wide = [f"WIDTH={held}", f"WIDTH4={4 * held}"]
            found[f"convolution_windows_{name}"] = ("convolution.comp", [*element(name), *four, *wide, added])
            found[f"convolution_taps_{name}"] = ("convolution.comp", [*element(name), *four, *wide, added, "TAPS"])
        if number == "float":
            for form in ("forward", "queries", "keys"):
                found[f"attention_{form}_{name}"] = ("attention.comp", [*element(name), *four, added, form.upper()])
    for name in ("f16", "bf16"):
        found[f"gemm_units_{name}"] = ("gemm_units.comp", STORED[name][3])
    return found


def sources(path: Path) -> list[str]:
    """A source's text and those of what it includes, each in its place."""
    text = path.read_text()
    return [text, *(t for name in INCLUDE.findall(text) for t in sources(path.parent / name))]


def digest(source: str, defines: list[str]) -> str:
    """What a module is made from: its source, what it includes, its defines."""
    parts = [*sources(SHADERS / source), *defines]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def validator() -> tuple[int, ...]:
    """The version of spirv-val; (0,) where there is none."""
    if not shutil.which("spirv-val"):
        return (0,)
    run = subprocess.run(["spirv-val", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"v(\d+)\.(\d+)", run.stdout)
    return tuple(map(int, found.groups())) if found else (0,)


def validate(path: Path, source: str) -> str:
    """spirv-val's complaint about a module, or nothing; nor where it is too old to know what the module uses."""
    if validator() < (VALIDATES_MATRICES if source in MATRICES else (1,)):
        return ""
    command = ["spirv-val", "--target-env", "vulkan1.2", "--scalar-block-layout", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout + run.stderr if run.returncode else ""


def build(compiler: str) -> int:
    """Compile what is listed and has changed, and remove the rest."""
    SPV.mkdir(exist_ok=True)
    before = json.loads(MANIFEST.read_text())["modules"] if MANIFEST.exists() else {}
    modules = {}
    for old in SPV.glob("*.spv"):
        if old.stem not in variants():
            old.unlink()
    for name, (source, defines) in variants().items():
        path = SPV / f"{name}.spv"
        kept = before.get(name, {})
        if path.exists() and kept.get("made_from") == digest(source, defines):
            modules[name] = kept
            continue
        command = [
            compiler,
            "-V",
            "--target-env",
            "vulkan1.2",
            "-S",
            "comp",
            *(f"-D{d}" for d in defines),
            str(SHADERS / source),
            "-o",
            str(path),
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"{name}: {run.stdout}{run.stderr}", file=sys.stderr)
            return 1
        if complaint := validate(path, source):
            print(f"{name}: {complaint}", file=sys.stderr)
            return 1
        words = path.read_bytes()
        modules[name] = {
            "source": source,
            "defines": defines,
            "made_from": digest(source, defines),
            "module": hashlib.sha256(words).hexdigest(),
        }
    MANIFEST.write_text(json.dumps({"modules": modules}, indent=1) + "\n")
    print(f"{len(modules)} modules, {sum(p.stat().st_size for p in SPV.glob('*.spv'))} bytes")
    return 0


def check() -> int:
    """Compare with the manifest."""
    listed = json.loads(MANIFEST.read_text())["modules"]
    wrong = [f"{name}: not in the manifest" for name in variants() if name not in listed]
    wrong += [f"{path.stem}: nothing makes this module" for path in SPV.glob("*.spv") if path.stem not in listed]
    for name, entry in listed.items():
        source, defines = variants().get(name, ("", []))
        if not source or entry["made_from"] != digest(source, defines):
            wrong.append(f"{name}: its source or defines changed since it was compiled")
        path = SPV / f"{name}.spv"
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != entry["module"]:
            wrong.append(f"{name}: the module is not the one that was compiled")
        elif source and (complaint := validate(path, source)):
            wrong.append(f"{name}: {complaint}")
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        print("run: nox -s shaders", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compile nothing, compare with the manifest")
    parser.add_argument("--compiler", default="glslangValidator", help="the glslang to use")
    arguments = parser.parse_args()
    sys.exit(check() if arguments.check else build(arguments.compiler))
