"""Sequence layers against PyTorch's on the same card, interleaved: `python gpu_sequence.py cuda|vulkan|opencl [CASE ...]`.

A step is forward, mean square, backward and Adam, a fresh graph each time; PyTorch's Adam is its fused one, cuDNN benchmarks, and
float32 is strict in both. The block is a TransformerEncoderLayer of 8 heads without dropout (B 32, T 256, D 512), in float32 and
with weights and activations in bfloat16; the LSTM one layer (T 64, B 64, H 512). `attention` is the op alone, with and without
overrides, and by every tile that fits the device: the first of kernels.attention.TILES should be the quickest.
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
from vsl_compute import dispatch
from vsl_compute.kernels import attention as kernels

BLOCK, LSTM = (32, 256, 512), (64, 64, 512)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
HEADS = {"T 256": (32, 8, 256, 64), "T 4096": (1, 8, 4096, 64)}


def block(library: Any) -> Any:
    """The layer in either library: their arguments are the same."""
    return library.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)


def lstm(library: Any) -> Any:
    """Likewise; what it returns first is what counts."""
    return library.LSTM(512, 512)


STEPS = {
    "block float32": (block, BLOCK, "float32"),
    "block bfloat16": (block, BLOCK, "bfloat16"),
    "lstm float32": (lstm, LSTM, "float32"),
}


def step(network: Any, optimizer: Any, x: Any) -> Callable[[], None]:
    """One step of either library."""

    def run() -> None:
        optimizer.zero_grad()
        y = network(x)
        ((y[0] if isinstance(y, tuple) else y) ** 2).mean().backward()
        optimizer.step()

    return run


def steps(backend: Any, spec: str, name: str) -> Comparison:
    """A layer's training step."""
    make, shape, dtype = STEPS[name]
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    vtl.manual_seed(0)
    ours, theirs = make(nn).to(spec, dtype=dtype), make(torch.nn).to("cuda", DTYPES[dtype])
    mine = step(ours, nn.optim.Adam(ours.parameters()), vtl.tensor(x).to(spec, dtype=dtype))
    peer = step(
        theirs, torch.optim.Adam(theirs.parameters(), fused=True), torch.from_numpy(x).to("cuda", DTYPES[dtype])
    )
    return pair(f"{name} step", mine, backend.synchronize, peer, 10)


def alone(backend: Any, dtype: str, what: str) -> list[Comparison]:
    """attention and its way back: as chosen, by the body, and by every tile."""
    rng, results = np.random.default_rng(0), []
    arrays = [rng.standard_normal(HEADS[what], dtype=np.float32) for _ in range(4)]
    q, k, v, g = (dispatch.asarray(backend, a, dtype) for a in arrays)
    tq, tk, tv, tg = (torch.from_numpy(a).to("cuda", DTYPES[dtype]).requires_grad_() for a in arrays)
    y, lse = dispatch.run("attention", q, k, v)
    scale = HEADS[what][3] ** -0.5
    attend = torch.nn.functional.scaled_dot_product_attention

    def measure(name: str) -> None:
        ty = attend(tq, tk, tv)
        for way, ours, peer in (
            ("forward", lambda: dispatch.run("attention", q, k, v), lambda: attend(tq, tk, tv)),
            ("backward", lambda: dispatch.run("attention_backward", g, q, k, v, y, lse, scale=scale),
             lambda: torch.autograd.grad(ty, (tq, tk, tv), tg, retain_graph=True)),
        ):  # fmt: skip
            results.append(pair(f"attention {way} {what} {dtype}, {name}", ours, backend.synchronize, peer, 10))
            print(results[-1], flush=True)

    measure("as chosen")
    with dispatch.overrides(False):
        measure("by the body")
    for form, found in tiled(backend).items():
        for tile in found:
            with only(backend, form, tile):
                measure(f"{form} {tile.rows}x{tile.columns} by {tile.thread_rows}x{tile.thread_columns}")
    return results


def tiled(backend: Any) -> dict[str, list[kernels.Tile]]:
    """Tiles of each form that the device takes for these heads."""
    launcher = kernels_of(backend).launcher
    return {form: launcher.tiles(form, 64, 64) for form in kernels.TILES}


def kernels_of(backend: Any) -> Any:
    """What launches our own kernels: on CUDA it stands behind cuDNN."""
    override = backend.override("attention").__self__
    return getattr(override, "_tiled", override)


class only:  # reads as a clause: with only(...)
    """Our kernels for every array, one form by one tile."""

    def __init__(self, backend: Any, form: str, tile: kernels.Tile) -> None:
        self.backend, self.ops, self.form, self.tile = backend, kernels_of(backend), form, tile

    def __enter__(self) -> None:
        """Put it in place."""
        self.before = self.backend._overrides, self.ops._fits, self.ops.launcher.tiles
        usual = self.ops.launcher.tiles
        self.backend._overrides = {**self.backend._overrides, **self.ops.overrides()}
        self.ops._fits = lambda nbytes: False
        self.ops.launcher.tiles = lambda form, e, v: [self.tile] if form == self.form else usual(form, e, v)

    def __exit__(self, *error: object) -> None:
        """Put things back."""
        self.backend._overrides, self.ops._fits, self.ops.launcher.tiles = self.before


def main(spec: str, names: list[str]) -> None:
    """Measure, print and save."""
    backend: Any = vsl.get(spec)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    results: list[Comparison] = []
    for name in names or [*STEPS, "attention"]:
        if name in STEPS:
            results.append(steps(backend, spec, name))
            print(results[-1], flush=True)
        else:
            for dtype in DTYPES:
                for what in HEADS:
                    results += alone(backend, dtype, what)
    info = backend.info
    where = spec.partition(":")[0]
    print(save(f"gpu-sequence-{where}", results, device=info.name, driver=info.driver, torch=torch.__version__))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
