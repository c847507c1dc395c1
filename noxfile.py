#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox[uv]>=2025.11", "packaging>=24"]
# ///
"""What can be done here, each as a session: `nox -l`, or `python3 run.py`, lists them.

`nox -R -s NAME` skips the installs of an environment that exists; `nox -s NAME -- ARGUMENTS` passes arguments on.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.11"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = bool(os.environ.get("CI"))

ROOT = Path(__file__).parent
PACKAGES = ("vsl_compute", "vtl_core", "vtl_data", "vtl_nn")
GPUS = ("cuda", "vulkan", "opencl")
EXTRAS = {"cuda": (os.environ.get("VTL_CUDA_EXTRA", "cuda12"),), "vulkan": ("vulkan",), "opencl": ("pocl",)}
TENSORS = ("packages/vtl_core", "packages/vtl_nn")  # suites that take any default device
DEVICES = (
    "test_opencl_",
    "test_vulkan_",
    "test_validate_d",
    "test_counters",
    "test_enumeration",
)  # files about drivers
TESTS = tuple(sorted(str(path) for path in Path("tests").glob("test_*.py")))
TORCH = "torch==2.13.0"

PROJECT = nox.project.load_toml("pyproject.toml")

if os.environ.get("PYTHONPATH") == str(ROOT / ".nox" / "boot"):
    del os.environ["PYTHONPATH"]  # run.py's, for nox alone: in a session it would hide a missing dependency


def group(name: str) -> list[str]:
    """The requirements of a dependency group of pyproject.toml."""
    return list(nox.project.dependency_groups(PROJECT, name))


def editable(session: nox.Session, *extras: str, groups: tuple[str, ...] = ("test",)) -> None:
    """Install all four packages in one resolver run, so that a wrong sibling pin fails here.

    Extras go to vtl-nn: that they are forwarded down to vsl-compute is part of what is tested.
    """
    bracket = f"[{','.join(extras)}]" if extras else ""
    sources = [f"packages/{package}{bracket if package == 'vtl_nn' else ''}" for package in PACKAGES]
    session.install(*(word for source in sources for word in ("-e", source)), *(r for g in groups for r in group(g)))


def settings(required: str | None = None) -> dict[str, str]:
    """VTL_TEST_X for every GPU backend: 1 for the required one, 0 for the others, unless the caller set it."""
    return {
        variable: os.environ.get(variable, "1" if name == required else "0")
        for name in GPUS
        for variable in (f"VTL_TEST_{name.upper()}",)
    }


def everything_on(session: nox.Session, backend: str) -> None:
    """All packages' tests and the conformance suite, with this backend required; tensors and layers live on it."""
    editable(session, *EXTRAS.get(backend, ()))
    env = settings(backend)
    if session.posargs or env.get(f"VTL_TEST_{backend.upper()}", "1") != "1":
        session.run("pytest", *session.posargs, env=env)
        return
    session.run("pytest", "packages/vsl_compute", "packages/vtl_data", *TESTS, env=env)
    session.run("pytest", *TENSORS, "--backend", backend, env=env)
    session.run("vsl", "conformance", "--backend", backend)


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """Set everything up and train a CNN on the Shapes data set on the CPU: curve and weights land in demo/."""
    editable(session, "plot", groups=())
    Path("demo").mkdir(exist_ok=True)
    arguments = session.posargs or ["--epochs", "3", "--plot", "demo/shapes.png", "--save", "demo/shapes.safetensors"]
    session.run("vtl", "train", "shapes", *arguments)
    session.log(f"vtl is {os.path.relpath(Path(session.bin, 'vtl'), ROOT)}")


@nox.session
def tests(session: nox.Session) -> None:
    """All packages' tests, on the CPU."""
    editable(session, "plot")
    session.run("pytest", *(session.posargs or ("-n", "auto")), env=settings())


@nox.session
def conformance(session: nox.Session) -> None:
    """The suite that every backend must pass, on the CPU (or `-- NAME`, and arguments for pytest: `-- opencl -n 2`)."""
    name, *arguments = session.posargs or ["cpu"]
    editable(session, *EXTRAS.get(name, ()))
    # asking PoCL for a binary to keep makes it compile a second time; threads of two workers wait for each other on two cores
    env = {"VSL_CACHE_DIR": "", "POCL_MAX_PTHREAD_COUNT": "1"}
    session.run("vsl", "conformance", "--backend", name, *(["--", *arguments] if arguments else []), env=env)


@nox.session(default=False)
def devices(session: nox.Session) -> None:
    """The tests that take a device, on PoCL and llvmpipe, both required, and the suites of layers on each and of tensors
    on llvmpipe, which `nox -s system` brings."""
    editable(session, "pocl", "vulkan")
    env = settings() | {"VTL_TEST_OPENCL": "1", "VTL_TEST_VULKAN": "1"}
    if session.posargs:
        session.run("pytest", *session.posargs, env=env)
        return
    files = sorted(Path("packages/vsl_compute/tests").glob("test_*.py"))
    paths = [str(path) for path in files if path.name.startswith(DEVICES)]
    session.run("pytest", *paths, "-n", "2", env=env)
    quick = ("-n", "2", "-m", "not slow")
    session.run("pytest", *TENSORS, "--backend", "vulkan", *quick, env=env)
    # PoCL compiles for minutes what the tensors' suite is made of, which `nox -s opencl` runs; Vulkan has shown it
    session.run("pytest", "packages/vtl_nn", "--backend", "opencl", *quick, env=env)


@nox.session(default=False)
def layers(session: nox.Session) -> None:
    """The conformance suite on Vulkan under the validation layers, which must not say a word; needs `nox -s system`."""
    editable(session, "vulkan")
    session.run("python", "ci/validation_layers.py", *session.posargs, env=settings("vulkan"))


@nox.session(default=False)
def cpu(session: nox.Session) -> None:
    """All tests and the conformance suite, on the CPU."""
    everything_on(session, "cpu")


@nox.session(default=False)
def cuda(session: nox.Session) -> None:
    """All tests and the conformance suite, on CUDA; fails without a device (VTL_TEST_CUDA=auto skips)."""
    everything_on(session, "cuda")


@nox.session(default=False)
def vulkan(session: nox.Session) -> None:
    """All tests and the conformance suite, on Vulkan, once under the validation layers; `nox -s system` brings llvmpipe."""
    everything_on(session, "vulkan")
    if not session.posargs:
        session.run("python", "ci/validation_layers.py", env=settings("vulkan"))


@nox.session(default=False, venv_backend="none")
def shaders(session: nox.Session) -> None:
    """Compile the fixed Vulkan kernels into spv/ (`-- --check` compares only); needs `nox -s system`."""
    session.run(sys.executable, "ci/build_shaders.py", *session.posargs, external=True)


@nox.session(default=False)
def opencl(session: nox.Session) -> None:
    """All tests and the conformance suite, on OpenCL; PoCL comes with the environment."""
    everything_on(session, "opencl")


@nox.session(default=False)
def suites(session: nox.Session) -> None:
    """Every suite on the GPUs of this machine, side by side, into benchmarks/results: `-- cuda vulkan --seconds 1700`."""
    names = [name for name in GPUS if name in session.posargs]
    editable(session, *(extra for name in names for extra in EXTRAS[name]))
    session.run("python", "ci/device_suites.py", *session.posargs)


@nox.session
def gradients(session: nox.Session) -> None:
    """Every row's and every gate's gradient: float64, random covectors, to 1e-7."""
    editable(session)
    session.run("pytest", "-k", "gradient or derivative or vjp", *session.posargs, env=settings())


@nox.session
def golden(session: nox.Session) -> None:
    """The golden values of validation are what mpmath says today."""
    session.install("numpy>=2.0", "mpmath>=1.3")
    session.run("python", "ci/golden.py", "--check")


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, its formatter and codespell; `-- --fix` mends what it can."""
    session.install(*group("lint"))
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *(["--fix"] if fix else []), "--show-fixes", ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")
    session.run(
        "codespell", "packages", "ci", "docs", "tests", "benchmarks", "README.md", "ML_ROADMAP.md", "CONTRIBUTING.md"
    )


@nox.session
def types(session: nox.Session) -> None:
    """Mypy strict, over the four packages and ci/."""
    editable(session, groups=("types",))
    session.run("mypy", *session.posargs)


@nox.session
def imports(session: nox.Session) -> None:
    """The floors of docs/architecture.md, and what `import vtl_nn` loads and costs."""
    editable(session, groups=("imports",))
    session.run("lint-imports")
    session.run("python", "ci/cold_import.py")


@nox.session
def shape(session: nox.Session) -> None:
    """No file over 400 lines without a reason, no drawer of odds and ends; versions, pins, extras and shaders agree."""
    session.install("packaging>=24")
    session.run("python", "ci/shape.py")
    session.run("python", "ci/pins.py")
    session.run("python", "ci/build_shaders.py", "--check")


@nox.session(default=False)
def render(session: nox.Session) -> None:
    """Compile every rendered text: CUDA C++ (NVRTC 12, nvcc 13), OpenCL C (clang), SPIR-V (spirv-val); needs `nox -s system`."""
    editable(session, groups=("render",))
    session.run("python", "ci/render.py", *session.posargs)


@nox.session(default=False)
def cuda_absent(session: nox.Session) -> None:
    """Install the extra cuda12 as users do, on a machine without a device: what is said, and that every part compiles."""
    editable(session, "cuda12", groups=("render",))
    session.run("python", "ci/cuda_absent.py", *session.posargs, env={"VSL_CACHE_DIR": ""})


@nox.session(default=False, venv_backend="none")
def system(session: nox.Session) -> None:
    """Install ci/system-packages with apt: compilers for `render`, a software Vulkan device for `vulkan`."""
    if not shutil.which("apt-get"):
        session.error("no apt-get here: install what ci/system-packages lists by hand")
    lines = Path("ci/system-packages").read_text().splitlines()
    names = [name for name in (line.partition("#")[0].strip() for line in lines) if name]
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    session.run(*sudo, "apt-get", "update", "-qq", external=True, env=env)
    session.run(*sudo, "apt-get", "install", "-qq", "-y", "--no-install-recommends", *names, external=True, env=env)


@nox.session(default=False)
def peers(session: nox.Session) -> None:
    """Compare with PyTorch, which is installed here and nowhere else."""
    with_torch(session, "test", "peers")
    session.run("pytest", *(session.posargs or ["tests/peers"]), env=settings())


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Five thousand random configurations of every family against PyTorch, on all cores; goes on where it stopped."""
    with_torch(session, "peers")
    session.run("python", "tests/peers/campaign.py", *session.posargs)


def with_torch(session: nox.Session, *groups: str) -> None:
    """Install the packages, these groups and PyTorch; pip takes its CPU build, uv would take 3 GB of CUDA."""
    editable(session, groups=groups)
    session.install("pip")
    session.run("python", "-m", "pip", "install", "-q", TORCH)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure against PyTorch and NumPy: paired, alternating; results go to benchmarks/results."""
    with_torch(session)
    session.run("python", "benchmarks/compare.py", *session.posargs)


@nox.session(default=False)
def coverage(session: nox.Session) -> None:
    """Lines and branches that the CPU tests reach."""
    editable(session)
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs, env=settings())
    session.run("coverage", "combine", "-q")
    session.run("coverage", "report", "--skip-covered")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation into site/; a broken link fails (`-- serve` shows it while you write)."""
    session.install(*group("docs"))
    env = {"NO_MKDOCS_2_WARNING": "1"}
    session.run("mkdocs", *(session.posargs or ["build", "--strict"]), env=env)


@nox.session(default=False, reuse_venv=False)
def build(session: nox.Session) -> None:
    """Build the wheels; install each alone, import it, run the compute example; weigh what vtl-nn downloads."""
    session.install("pip", "uv", "packaging>=24")
    session.run("python", "ci/wheels.py", "dist")
    session.run("python", "ci/download_size.py", "dist")


@nox.session(default=False, reuse_venv=False)
def minimums(session: nox.Session) -> None:
    """The tests with the lowest versions that the packages say they support."""
    sources = [word for package in PACKAGES for word in ("-e", f"packages/{package}")]
    session.install("--resolution", "lowest", "--only-binary", "numpy,safetensors", *sources)
    frozen = str(session.run("uv", "pip", "freeze", "-q", "--exclude-editable", silent=True, external=True))
    constraints = Path(session.create_tmp(), "lowest.txt")
    constraints.write_text(frozen)
    session.log("with " + " ".join(frozen.split()))
    session.install("-c", str(constraints), *group("test"))
    session.run("pytest", *session.posargs, env=settings())


@nox.session(default=False, venv_backend="none")
def changelog(session: nox.Session) -> None:
    """A change under a package's src/ needs a fragment in its changes/ (`-- BASE` compares with that commit)."""
    session.run(sys.executable, "ci/changelog.py", *session.posargs, external=True)


if __name__ == "__main__":
    nox.main()
