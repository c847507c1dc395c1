"""Eager training steps against PyTorch's on the same card, interleaved: `python gpu_step.py cuda|vulkan|opencl [CASE ...]`.

A step is forward, cross-entropy, backward and Adam, a fresh graph each time; PyTorch's Adam is its fused one, cuDNN
benchmarks, and float32 is strict in both unless the case says TF32. ResNet-18 is torchvision's with the stem for CIFAR; of
PyTorch's two orders of axes the quicker one is the peer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpu_ops import pair
from harness import Comparison, save

import vsl_compute as vsl
import vtl_core as vtl
import vtl_nn as nn

CASES = {
    "MLP-64": (64, 512),
    "CNN-64": (64, 3, 32, 32),
    "CNN-512": (512, 3, 32, 32),
    "ResNet-18-512": (512, 3, 32, 32),
    "ResNet-18-512 TF32": (512, 3, 32, 32),
}
CALLS = {"MLP-64": 100, "CNN-64": 50, "CNN-512": 20, "ResNet-18-512": 3, "ResNet-18-512 TF32": 3}


def model(library: Any, name: str) -> Any:
    """The network in either library: their names are the same."""
    if name.startswith("ResNet"):
        return nn.models.resnet18(10) if library is nn else _resnet()
    if name.startswith("MLP"):
        return library.Sequential(library.Linear(512, 512), library.ReLU(), library.Linear(512, 10))
    return library.Sequential(
        library.Conv2d(3, 32, 3, padding=1), library.ReLU(), library.MaxPool2d(2), library.Conv2d(32, 64, 3, padding=1), library.ReLU(),
        library.MaxPool2d(2), library.Flatten(), library.Linear(4096, 128), library.ReLU(), library.Linear(128, 10),
    )  # fmt: skip


def _resnet() -> Any:
    """torchvision's, with the 3 x 3 stem without pooling that images of 32 x 32 take."""
    from torchvision.models import resnet18

    network = resnet18(num_classes=10)
    network.conv1, network.maxpool = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False), torch.nn.Identity()
    return network


def rival(name: str, images: Any, labels: Any) -> Callable[[], None]:
    """PyTorch's step, in the order of axes in which it is quicker."""
    found = []
    for order in (torch.contiguous_format, torch.channels_last)[: 1 + (images.ndim == 4)]:
        network = model(torch.nn, name).cuda().to(memory_format=order)
        x = torch.from_numpy(images).cuda().contiguous(memory_format=order)
        run = step(network, torch.optim.Adam(network.parameters(), fused=True), torch.nn.CrossEntropyLoss(), x,
                   torch.from_numpy(labels).cuda())  # fmt: skip
        for _ in range(5):
            run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(5):
            run()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start, run))
    return min(found, key=lambda pair: pair[0])[1]


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
    torch.backends.cudnn.benchmark = True
    results: list[Comparison] = []
    for name in names or CASES:
        tf32 = name.endswith("TF32")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        vtl.set_float32_matmul_precision("high" if tf32 else "highest")
        rng = np.random.default_rng(0)
        images, labels = rng.standard_normal(CASES[name], dtype=np.float32), rng.integers(0, 10, CASES[name][0])
        vtl.manual_seed(0)
        ours = model(nn, name).to(spec)
        mine = step(
            ours,
            nn.optim.Adam(ours.parameters()),
            nn.CrossEntropyLoss(),
            vtl.tensor(images).to(spec),
            vtl.tensor(labels).to(spec),
        )
        results.append(pair(f"{name} eager step", mine, backend.synchronize, rival(name, images, labels), CALLS[name]))
        print(results[-1], flush=True)
        info, where = backend.info, spec.partition(":")[0]
        path = save(f"gpu-step-{where}", results, device=info.name, driver=info.driver, torch=torch.__version__)
    print(path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
