"""What travels in a training step under each placement, by the backend's counters: `python device_memory.py cuda|vulkan|opencl`.

SimpleCNN, batch 64, float32, Adam: a steady step, stage by stage, and its time. Prints the table of docs/device-memory.md.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from harness import RESULTS, machine

import vsl_compute as vsl
import vtl_core as vtl
import vtl_nn as nn

WARM_UP, TIMED = 4, 20
STAGES = ("forward", "backward", "optimizer", "read")


def modes(name: str) -> dict[str, vtl.Placement | None]:
    """By what a user writes; None is the explicit device."""
    explicit: dict[str, vtl.Placement | None] = {f'model.to("{name}")': None}
    if name != "cuda":
        return {f"VTL_USE_{name.upper()}": vtl.Placement("cpu", name, "cpu", name, name, "cpu"), **explicit}
    found: dict[str, vtl.Placement | None] = {}
    for bits in range(8):
        on = [name if bits >> i & 1 else "cpu" for i in range(3)]
        words = [word for i, word in enumerate(("ACTIVATIONS", "BACKWARD", "OPTIMIZER")) if bits >> i & 1]
        found[" + ".join(["VTL_USE_CUDA", *words])] = vtl.Placement("cpu", name, on[0], on[1], on[2])
    return found | explicit


def measure(name: str, placement: vtl.Placement | None) -> dict[str, Any]:
    """Bytes and calls of each stage of one steady step, and seconds of a step."""
    backend = vsl.get(name)
    device = "cpu" if placement is not None else name
    context = vtl.Context(placement=placement) if placement is not None else vtl.Context(device)
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((64, 3, 32, 32), dtype=np.float32), rng.integers(0, 10, 64)
    with context.attach_session():
        vtl.manual_seed(0)
        model = nn.models.SimpleCNN(10).to(device)
        optimizer = nn.optim.Adam(model.parameters())
        stages: dict[str, Any] = {}

        def counted(stage: str, action: Callable[[], Any]) -> Any:
            before = vars(backend.transfers())
            result = action()
            backend.synchronize()
            stages[stage] = {key: value - before[key] for key, value in vars(backend.transfers()).items()}
            return result

        def forward() -> vtl.Tensor:
            x, y = vtl.tensor(images, device=device), vtl.tensor(labels, device=device)
            loss: vtl.Tensor = nn.functional.cross_entropy(model(x), y)
            return loss

        def step() -> None:
            loss = counted("forward", forward)
            optimizer.zero_grad()
            counted("backward", loss.backward)
            counted("optimizer", optimizer.step)
            counted("read", loss.item)

        for _ in range(WARM_UP):
            step()
        seconds = []
        for _ in range(TIMED):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
    return {"stages": stages, "step_s": statistics.median(seconds)}


def size(nbytes: int) -> str:
    """Bytes with thousands apart."""
    return f"{nbytes:,}" if nbytes else "0"


def main(name: str) -> None:
    """Measure every mode, print the table, save the figures."""
    results = {}
    print("| mode | " + " | ".join(f"{s} up | {s} down" for s in STAGES) + " | step |")
    print("|---" * (2 * len(STAGES) + 2) + "|")
    for mode, placement in modes(name).items():
        result = results[mode] = measure(name, placement)
        cells = [size(result["stages"][s][key]) for s in STAGES for key in ("bytes_to_device", "bytes_to_host")]
        print(f"| {mode} | {' | '.join(cells)} | {result['step_s'] * 1e3:.1f} ms |", flush=True)
    info = vsl.get(name).info
    facts = machine() | {"device": info.name, "driver": info.driver}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-device-memory-{name}.json"
    path.write_text(
        json.dumps({"subject": f"device-memory-{name}", "machine": facts, "results": results}, indent=1) + "\n"
    )
    print(path)


if __name__ == "__main__":
    main(sys.argv[1])
