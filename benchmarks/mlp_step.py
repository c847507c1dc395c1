"""One training step of an MLP 512-512-10, batch 64, Adam, cross-entropy, float32: `python mlp_step.py vtl|torch` is one worker."""

from __future__ import annotations

import sys

import numpy as np
from harness import serve

CALLS = 20


def ours() -> None:
    """vtl_nn, eager."""
    import vtl_core as vtl
    import vtl_nn as nn

    vtl.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = nn.optim.Adam(model.parameters())
    rng = np.random.default_rng(0)
    x = vtl.tensor(rng.standard_normal((64, 512)).astype(np.float32))
    labels = vtl.tensor(rng.integers(0, 10, 64))
    loss_of = nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(x), labels).backward()
        optimizer.step()

    serve(step, calls=CALLS)


def torch() -> None:
    """PyTorch, eager, its default Adam."""
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((64, 512)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 10, 64))
    loss_of = torch.nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(x), labels).backward()
        optimizer.step()

    serve(step, calls=CALLS)


if __name__ == "__main__":
    {"vtl": ours, "torch": torch}[sys.argv[1]]()
