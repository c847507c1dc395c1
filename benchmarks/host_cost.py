"""What the host pays: `python host_cost.py numpy|untracked|tracked` is a worker that adds two small arrays, for `compare.py`.

`python host_cost.py steps [MLP-64 CNN-64 LSTM-64]` runs whole training steps on a CUDA device that does nothing (null_cuda.py), and
prints what each makes: launches, calls of cuBLAS and cuDNN, calls of Python functions, and microseconds by stage. So a
change of the eager path is judged without a GPU; counts do not depend on the machine, and times are minima of many steps.
`python host_cost.py row SPEC` times one row through dispatch and through a tensor on a device, recording alone: on a
software device nothing is submitted while it is timed.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import serve

CALLS = 5000
CASES = {"MLP-64": (64, 512), "CNN-64": (64, 3, 32, 32), "LSTM-64": (64, 64, 512)}
STAGES = ("zero_grad", "forward", "loss", "backward", "step")


def worker(which: str) -> None:
    """(64, 10) + (64, 10), float32: so small that the arithmetic is a tenth of the time."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 10)).astype(np.float32) for _ in range(2))
    if which == "numpy":
        serve(lambda: a + b, calls=CALLS)
        return
    import vtl_core as vtl

    x, y = vtl.tensor(a, requires_grad=which == "tracked"), vtl.tensor(b)
    serve(lambda: x + y, calls=CALLS)


def network(nn: Any, name: str) -> Any:
    """The networks that issue 4 names, and the LSTM of gpu_sequence.py."""
    if name == "LSTM-64":
        return nn.LSTM(512, 512)
    if name == "MLP-64":
        return nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def stepper(name: str) -> Callable[[], list[float]]:
    """One step, with the clock read between its stages."""
    import vtl_core as vtl
    import vtl_nn as nn

    rng = np.random.default_rng(0)
    images = vtl.tensor(rng.standard_normal(CASES[name], dtype=np.float32)).to("cuda")
    labels = vtl.tensor(rng.integers(0, 10, CASES[name][0])).to("cuda")
    model = network(nn, name).to("cuda")
    optimizer, criterion = nn.optim.Adam(model.parameters()), nn.CrossEntropyLoss()
    if name == "LSTM-64":
        criterion = lambda y, labels: (y[0] ** 2).mean()  # of what it returns first
    now = time.perf_counter

    def step() -> list[float]:
        clock = [now()]
        optimizer.zero_grad()
        clock.append(now())
        y = model(images)
        clock.append(now())
        loss = criterion(y, labels)
        clock.append(now())
        loss.backward()
        clock.append(now())
        optimizer.step()
        clock.append(now())
        return clock

    return step


def steps(names: list[str]) -> None:
    """Count and time."""
    os.environ["VSL_AUTOTUNE"] = "0"
    import null_cuda

    import vsl_compute as vsl

    null_cuda.install()
    backend: Any = vsl.get("cuda")
    for name in names or CASES:
        step = stepper(name)
        for _ in range(20):
            step()
        before = backend.counts()
        step()
        made = {kind: count - before[kind] for kind, count in backend.counts().items()}
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(10):
            step()
        profile.disable()
        calls = pstats.Stats(profile).total_calls // 10  # type: ignore[attr-defined]  # typeshed does not know it
        spent = np.diff(np.array([step() for _ in range(3000)]), axis=1).min(axis=0) * 1e6
        print(f"{name}: {made} and {calls} calls of functions a step")
        print(
            "   us: "
            + ", ".join(f"{stage} {us:.1f}" for stage, us in zip(STAGES, spent, strict=True))
            + f"; {spent.sum():.0f} in all"
        )


def row(spec: str) -> None:
    """Time an addition of 640 elements."""
    import vsl_compute as vsl
    import vtl_core as vtl

    backend: Any = vsl.get(spec)
    x = vtl.tensor(np.ones((64, 10), np.float32)).to(spec)
    tracked = vtl.tensor(np.ones((64, 10), np.float32)).to(spec).requires_grad_()
    for name, call in {
        "dispatch": lambda: vsl.run("add", x.raw, x.raw),
        "tensor": lambda: x + x,
        "tracked tensor": lambda: tracked + x,
    }.items():
        best = float("inf")
        for _ in range(1000):
            backend.synchronize()
            call()
            start = time.perf_counter()
            for _ in range(5):  # fewer than are submitted at once
                call()
            best = min(best, (time.perf_counter() - start) / 5)
        print(f"{spec} {name}: {best * 1e6:.1f} us")


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "steps":
        steps(rest)
    elif command == "row":
        row(*rest)
    else:
        worker(command)
