"""Eager training steps against PyTorch's on the same card, interleaved: `python gpu_step.py cuda|vulkan|opencl [MLP-64 CNN-64 CNN-512]`.

A step is forward, cross-entropy, backward and Adam, a fresh graph each time; PyTorch's Adam is its fused one, cuDNN
benchmarks, and float32 is strict in both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpu_ops import pair
from harness import Comparison, save

import vsl_compute as vsl
import vtl_core as vtl
import vtl_nn as nn

CASES = {"MLP-64": (64, 512), "CNN-64": (64, 3, 32, 32), "CNN-512": (512, 3, 32, 32)}
CALLS = {"MLP-64": 100, "CNN-64": 50, "CNN-512": 20}


def model(library: Any, name: str) -> Any:
    """The network in either library: their names are the same."""
    if name.startswith("MLP"):
        return library.Sequential(library.Linear(512, 512), library.ReLU(), library.Linear(512, 10))
    return library.Sequential(
        library.Conv2d(3, 32, 3, padding=1), library.ReLU(), library.MaxPool2d(2), library.Conv2d(32, 64, 3, padding=1), library.ReLU(),
        library.MaxPool2d(2), library.Flatten(), library.Linear(4096, 128), library.ReLU(), library.Linear(128, 10),
    )  # fmt: skip


def step(network: Any, optimizer: Any, criterion: Any, images: Any, labels: Any) -> Callable[[], None]:
    """One step of either library."""

    def run() -> None:
        optimizer.zero_grad()
        criterion(network(images), labels).backward()
        optimizer.step()

    return run


def main(spec: str, names: list[str]) -> None:
    """Measure, print and save."""
    backend: Any = vsl.get(spec)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    results: list[Comparison] = []
    for name in names or CASES:
        rng = np.random.default_rng(0)
        images, labels = rng.standard_normal(CASES[name], dtype=np.float32), rng.integers(0, 10, CASES[name][0])
        vtl.manual_seed(0)
        ours = model(nn, name).to(spec)
        theirs = model(torch.nn, name).cuda()
        mine = step(
            ours,
            nn.optim.Adam(ours.parameters()),
            nn.CrossEntropyLoss(),
            vtl.tensor(images).to(spec),
            vtl.tensor(labels).to(spec),
        )
        peer = step(theirs, torch.optim.Adam(theirs.parameters(), fused=True), torch.nn.CrossEntropyLoss(),
                    torch.from_numpy(images).cuda(), torch.from_numpy(labels).cuda())  # fmt: skip
        results.append(pair(f"{name} eager step", mine, backend.synchronize, peer, CALLS[name]))
        print(results[-1], flush=True)
    info = backend.info
    where = spec.partition(":")[0]
    print(save(f"gpu-step-{where}", results, device=info.name, driver=info.driver, torch=torch.__version__))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
