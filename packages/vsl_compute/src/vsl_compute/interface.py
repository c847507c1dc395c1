"""Whether two installed packages speak the same interface: asked at import, before anything else is loaded.

Installers honour version pins, but `--no-deps`, vendored copies and half-upgraded environments do not. There the first
sign would be an AttributeError deep inside; this check names both packages and the command that mends it.
"""

from __future__ import annotations

from collections.abc import Mapping

from vsl_compute._interface import PROVIDES
from vsl_compute.errors import InterfaceError

__all__ = ["PROVIDES", "require"]


def require(provides: Mapping[str, str], requires: Mapping[str, str], *, by: str, provider: str) -> None:
    """Raise unless `provides` has every interface of `requires`: the same major, the same minor or a later one.

    `by` and `provider` are "distribution version", as in "vtl-core 0.1.0"; both appear in the message.

    Errors:  InterfaceError (an ImportError) names the interface, both versions and the pip command
    """
    for interface, wanted in requires.items():
        major, minor = _parse(wanted)
        found = provides.get(interface)
        if found is None:
            raise InterfaceError(_message(interface, wanted, by, provider, "does not have it"))
        found_major, found_minor = _parse(found)
        if found_major != major or found_minor < minor:
            age = "newer" if (found_major, found_minor) > (major, minor) else "older"
            raise InterfaceError(_message(interface, wanted, by, provider, f"speaks {found}: it is {age}"))


def _parse(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def _message(interface: str, wanted: str, by: str, provider: str, finding: str) -> str:
    distributions = " ".join(text.split()[0] for text in (by, provider))
    return (
        f"{by} needs interface {interface} {wanted} (>= {wanted}, < {_parse(wanted)[0] + 1}.0), "
        f"but the installed {provider} {finding}. Run: python -m pip install --upgrade {distributions}"
    )
