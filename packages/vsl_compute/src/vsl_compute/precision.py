"""How float32 products may be computed: one setting of the process, read by the backends that have a choice."""

from __future__ import annotations

from .errors import AttributeValueError

CHOICES = ("highest", "high")

_chosen = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how float32 matrix products and convolutions are computed, for the whole process.

    "highest" keeps float32's 24 bits in every product, the default; "high" lets devices that have TF32 units read
    arguments with 11 bits (relative error about 5e-4) and add in float32. Devices without such units compute alike.

    Errors:  AttributeValueError for another word
    """
    global _chosen
    given: object = precision  # an array has no truth value to compare by
    if not isinstance(given, str) or given not in CHOICES:
        raise AttributeValueError(f"set_float32_matmul_precision: {precision!r:.40} is none of {', '.join(CHOICES)}")
    _chosen = precision


def get_float32_matmul_precision() -> str:
    """What was chosen: "highest" or "high"."""
    return _chosen
