"""What one forward row costs the host through the whole Tensor path: `python host_cost.py tracked|untracked|numpy` is one worker."""

from __future__ import annotations

import sys

import numpy as np
from harness import serve

CALLS = 5000


def main(which: str) -> None:
    """(64, 10) + (64, 10), float32: so small that the arithmetic is a tenth of the time."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 10)).astype(np.float32) for _ in range(2))
    if which == "numpy":
        serve(lambda: a + b, calls=CALLS)
        return
    import vtl_core as vtl

    x, y = vtl.tensor(a, requires_grad=which == "tracked"), vtl.tensor(b)
    serve(lambda: x + y, calls=CALLS)


if __name__ == "__main__":
    main(sys.argv[1])
