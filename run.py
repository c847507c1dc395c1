"""python3 run.py SESSION... [-- ARGUMENTS]: run nox sessions with nothing installed but Python and pip.

nox goes into .nox/boot, beside the environments it makes; `python3 run.py` alone lists the sessions.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  # an older Python gets this far, and no farther
    sys.exit("run.py: needs Python 3.11 or newer, and this is %d.%d: python3.11 run.py ..." % sys.version_info[:2])  # noqa: UP031  # likewise

REQUIREMENTS = ("nox[uv]>=2025.11", "packaging>=24")

ROOT = Path(__file__).resolve().parent
BOOT = ROOT / ".nox" / "boot"
STAMP = BOOT / "stamp"  # written last: a broken install, another Python or a changed list is redone


def wanted() -> str:
    """What the stamp of a usable install says."""
    return "\n".join((sys.version, sys.executable, *REQUIREMENTS))


def main(arguments: list[str]) -> None:
    """Install nox if it is not there, then become it."""
    if not STAMP.is_file() or STAMP.read_text() != wanted():
        shutil.rmtree(BOOT, ignore_errors=True)
        # --target, because a distribution's own Python refuses to install into itself (PEP 668)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore"]
        code = subprocess.run([*pip, "--target", str(BOOT), *REQUIREMENTS], check=False).returncode
        if code:
            sys.exit(f"run.py: pip could not install {' '.join(REQUIREMENTS)} (exit code {code}, its reason is above)")
        STAMP.write_text(wanted())
    path = f"{BOOT / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # sessions call uv
    environment = os.environ | {"PYTHONPATH": str(BOOT), "PATH": path}
    command = [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py")]
    command += ["-s", *arguments] if arguments else ["-l"]
    sys.exit(subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
