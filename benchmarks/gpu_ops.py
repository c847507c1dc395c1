"""Device ops against PyTorch's on the same card, interleaved in one process: `python gpu_ops.py vulkan|opencl|cuda [SUBJECT ...]`.

Every timing starts after both devices are idle and ends when the work is done; the median of the paired ratios counts. A
call before it, that is not timed, has the card switch to the one that is measured: that takes it about as long as a product
of 1024, whichever of the two comes second. A block has as many calls as make its end, about 100 us of waking and switching,
small beside them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Comparison, save

import vsl_compute as vsl

ROUNDS = 15


def pair(
    name: str, ours: Callable[[], object], wait: Callable[[], None], peer: Callable[[], object], calls: int
) -> Comparison:
    """Time blocks of `calls` calls of each in turn; a name that begins with "record" is of the host's time alone."""

    def block(call: Callable[[], object], finish: Callable[[], None]) -> float:
        call()
        finish()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        recorded = time.perf_counter()
        finish()
        return ((recorded if name.startswith("record") else time.perf_counter()) - start) / calls

    for _ in range(3):
        block(ours, wait)
        block(peer, torch.cuda.synchronize)
    pairs = []
    for number in range(ROUNDS):
        left = block(ours, wait) if number % 2 else 0.0
        right = block(peer, torch.cuda.synchronize)
        pairs.append((left or block(ours, wait), right))
    ratios = [a / b for a, b in pairs]
    quarter = statistics.quantiles(ratios, n=4)
    return Comparison(name, "ours", "torch", statistics.median(ratios), (quarter[0], quarter[2]), statistics.median(a for a, _ in pairs),
                      statistics.median(b for _, b in pairs), ROUNDS)  # fmt: skip


def _lines(spec: str, both: Callable[..., tuple[Any, Any]], measure: Callable[..., None], rng: Any) -> None:
    """Ops along an axis: sums, softmax, norms, their gradients, pools. "as a copy": the peer copies as many bytes."""
    aten, f, context = torch.ops.aten, torch.nn.functional, vsl.ComputeContext(spec)
    (x, tx), (g, tg), (w, tw), (b, tb) = both(65536, 1024), both(65536, 1024), both(1024), both(1024)
    measure("copy 67M", lambda: vsl.run("positive", x), tx.clone, 40)
    measure("gelu 67M as a copy", lambda: vsl.run("gelu", x), tx.clone, 40)
    measure("softmax rows of 1024 as a copy", lambda: vsl.run("softmax", x, axis=-1), tx.clone, 40)
    measure("sum 65536 rows", lambda: vsl.run("sum", x, axes=(1,)), lambda: tx.sum(1), 10)
    measure("sum 1024 columns", lambda: vsl.run("sum", x, axes=(0,)), lambda: tx.sum(0), 10)
    y, ty = vsl.run("softmax", x, axis=-1), tx.softmax(-1)
    measure("softmax backward", lambda: vsl.run("softmax_backward", g, y, axis=-1),
            lambda: aten._softmax_backward_data(tg, ty, -1, torch.float32), 10)  # fmt: skip
    measure("log_softmax rows of 1024", lambda: vsl.run("log_softmax", x, axis=-1), lambda: tx.log_softmax(-1), 10)
    measure(
        "layer_norm",
        lambda: vsl.run("layer_norm", x, w, b, normalized_shape=(1024,)),
        lambda: f.layer_norm(tx, (1024,), tw, tb),
        10,
    )
    _, mean, variance = vsl.run("layer_norm", x, w, b, normalized_shape=(1024,))
    _, tmean, trstd = torch.native_layer_norm(tx, (1024,), tw, tb, 1e-5)
    measure("layer_norm input", lambda: vsl.run("layer_norm_input", g, x, mean, variance, w, normalized_shape=(1024,)),
            lambda: aten.native_layer_norm_backward(tg, tx, [1024], tmean, trstd, tw, tb, [True, False, False]), 10)  # fmt: skip
    labels = rng.integers(0, 1024, 65536)
    target, ttarget = context.asarray(labels), torch.from_numpy(labels).cuda()
    measure("cross_entropy", lambda: vsl.run("cross_entropy", x, target), lambda: f.cross_entropy(tx, ttarget), 10)
    (image, timage), (c, tc) = both(64, 64, 64, 64), both(64)
    measure(
        "batch_norm",
        lambda: vsl.run("batch_norm", image, c, c),
        lambda: f.batch_norm(timage, None, None, tc, tc, True),
        10,
    )
    _, mean, variance = vsl.run("batch_norm", image, c, c)
    _, tmean, trstd = torch.native_batch_norm(timage, tc, tc, None, None, True, 0.1, 1e-5)
    every = [True, True, True]
    measure("batch_norm backward", lambda: vsl.run("batch_norm_backward", image, image, mean, variance, c),
            lambda: aten.native_batch_norm_backward(timage, timage, tc, None, None, tmean, trstd, True, 1e-5, every), 10)  # fmt: skip
    pooled, index = vsl.run("max_pool2d", image, kernel_size=2)
    tpooled, tindex = f.max_pool2d(timage, 2, return_indices=True)
    measure("max_pool2d backward", lambda: vsl.run("max_pool2d_backward", pooled, index, shape=image.shape, kernel_size=2),
            lambda: aten.max_pool2d_with_indices_backward(tpooled, timage, [2, 2], [2, 2], [0, 0], [1, 1], False, tindex), 10)  # fmt: skip
    measure("avg_pool2d", lambda: vsl.run("avg_pool2d", image, kernel_size=2), lambda: f.avg_pool2d(timage, 2), 10)
    measure("avg_pool2d backward", lambda: vsl.run("avg_pool2d_backward", pooled, shape=image.shape, kernel_size=2),
            lambda: aten.avg_pool2d_backward(tpooled, timage, [2, 2], [2, 2], [0, 0], False, True, None), 10)  # fmt: skip


def _moves(spec: str, both: Callable[..., tuple[Any, Any]], measure: Callable[..., None], rng: Any) -> None:
    """Ops that move elements, order them, draw them, or update parameters."""
    context = vsl.ComputeContext(spec)
    (square, tsquare), (flat, tflat) = both(4096, 4096), both(1 << 22)
    measure(
        "copy transposed 4096",
        lambda: vsl.run("contiguous", square.permute((1, 0))),
        tsquare.T.contiguous,
        10,
    )
    measure("astype float16 17M", lambda: vsl.run("astype", square, dtype="float16"), tsquare.half, 10)
    measure("sort 4M", lambda: vsl.run("sort", flat), lambda: tflat.sort(stable=True), 3)
    (rows, trows), (many, tmany) = both(1024, 4096), both(1 << 16, 64)
    measure("sort 1024 rows of 4096", lambda: vsl.run("sort", rows), lambda: trows.sort(stable=True), 3)
    measure("sort 65536 rows of 64", lambda: vsl.run("sort", many), lambda: tmany.sort(stable=True), 3)
    measure("cumsum 4M", lambda: vsl.run("cumsum", flat), lambda: tflat.cumsum(0), 10)
    measure("cumsum 1024 rows of 4096", lambda: vsl.run("cumsum", rows), lambda: trows.cumsum(1), 10)
    (table, ttable), (terms, tterms) = both(50_000, 256), both(32_768, 256)
    host = rng.integers(0, 50_000, 32_768)
    index, tindex = context.asarray(host), torch.from_numpy(host).cuda()
    measure(
        "gather 32768 of 50000 rows of 256",
        lambda: vsl.run("gather", table, index),
        lambda: ttable.index_select(0, tindex),
        10,
    )
    measure(
        "embedding",
        lambda: vsl.run("embedding", index, table),
        lambda: torch.nn.functional.embedding(tindex, ttable),
        10,
    )
    measure("embedding backward", lambda: vsl.run("embedding_backward", terms, index, shape=(50_000, 256)),
            lambda: torch.ops.aten.embedding_dense_backward(tterms, tindex, 50_000, -1, False), 10)  # fmt: skip
    measure("uniform 17M", lambda: vsl.run("random", square, kind="uniform", key=(1, 2), counter=(0, 0, 0, 0), shape=(4096, 4096)),
            lambda: torch.rand(4096, 4096, device="cuda"), 10)  # fmt: skip
    measure("normal 17M", lambda: vsl.run("random", square, kind="normal", key=(1, 2), counter=(0, 0, 0, 0), shape=(4096, 4096)),
            lambda: torch.randn(4096, 4096, device="cuda"), 10)  # fmt: skip
    slots = [both(4096, 4096) for _ in range(3)]
    step = context.asarray(np.zeros((), np.float32))
    vsl.run("fill", alpha=0.0, out=slots[1][0])
    vsl.run("fill", alpha=0.0, out=slots[2][0])
    tp = torch.nn.Parameter(slots[0][1])
    tp.grad = tsquare
    peer = torch.optim.Adam([tp], lr=1e-3, fused=True)
    numbers = {
        "lr": 1e-3,
        "b1": 0.9,
        "b2": 0.999,
        "log_b1": float(np.log(0.9)),
        "log_b2": float(np.log(0.999)),
        "eps": 1e-8,
    }
    arrays = [(square, *(v for v, _ in slots), step)]
    measure("adam 17M", lambda: vsl.run_update("adam", arrays, numbers), peer.step, 10)
    (pw, tpw) = both(64, 64, 64, 64)
    measure(
        "max_pool2d 64x64x64x64",
        lambda: vsl.run("max_pool2d", pw, kernel_size=2),
        lambda: torch.nn.functional.max_pool2d(tpw, 2),
        10,
    )
    (left, tleft), (right, tright) = both(4096, 1024), both(4096, 3072)
    measure("concat", lambda: vsl.run("concat", left, right, axis=1), lambda: torch.cat([tleft, tright], 1), 10)
    measure("dropout 17M", lambda: vsl.run("dropout", square, p=0.5, key=(1, 2), counter=(0, 0, 0, 0)),
            lambda: torch.nn.functional.dropout(tsquare, 0.5), 10)  # fmt: skip


def _recorded(backend: Any, call: Callable[[], object]) -> Callable[[], object]:
    """The dispatch that a call comes to, alone."""
    seen: list[tuple[Any, ...]] = []
    commands, real = backend.commands, backend.commands.dispatch
    commands.dispatch = lambda *given: (seen.append(given), real(*given))
    backend.prepared.clear()  # what was made ready holds the real one
    call()
    del commands.dispatch
    backend.prepared.clear()
    call()
    return lambda: real(*seen[0])


def main(spec: str, subjects: list[str]) -> None:
    """Measure, print and save."""
    backend: Any = vsl.get(spec)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    rng = np.random.default_rng(0)

    def both(*shape: int, dtype: str = "float32") -> tuple[Any, Any]:
        array = rng.standard_normal(shape, dtype=np.float32)
        ours = vsl.ComputeContext(spec).asarray(array, dtype)
        return ours, torch.from_numpy(array).cuda().to(getattr(torch, dtype))

    results = []

    def measure(name: str, ours: Callable[[], object], peer: Callable[[], object], calls: int) -> None:
        if not subjects or any(name.startswith(s) for s in subjects):
            results.append(pair(name, ours, backend.synchronize, peer, calls))
            print(results[-1], flush=True)
            keep()

    def keep() -> Path:
        """Save what has been measured so far: an interrupted run keeps it."""
        info, where = backend.info, spec.partition(":")[0]
        return save(f"gpu-ops-{where}", results, device=info.name, driver=info.driver, torch=torch.__version__)

    def product(name: str, left: tuple[Any, Any], right: tuple[Any, Any], calls: int) -> None:
        (a, ta), (b, tb) = left, right
        measure(name, lambda: vsl.run("matmul", a, b), lambda: ta @ tb, calls)

    def turned(pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return pair[0].permute((1, 0)), pair[1].T

    for n in (1024, 2048, 4096, 1023, 2047, 4095, 4097):
        a, b = both(n, n), both(n, n)
        for sides in ("nn", "tn", "nt", "tt"):
            left, right = (turned(x) if side == "t" else x for x, side in zip((a, b), sides, strict=True))
            product(f"gemm {n} {sides}", left, right, 20 if n < 4000 else 6)
    for dtype in ("float16", "bfloat16"):
        for n in (1024, 2048, 4096, 4095):
            a, b = both(n, n, dtype=dtype), both(n, n, dtype=dtype)
            for sides in ("nn", "tn", "nt", "tt"):
                left, right = (turned(x) if side == "t" else x for x, side in zip((a, b), sides, strict=True))
                product(f"gemm {n} {dtype} {sides}", left, right, 20)
    a, x = both(4096, 4096), both(4096, 1)
    product("gemv 4096x4096", a, x, 50)
    product("gemv 4096x4096 t", turned(a), x, 50)
    product("gemm 4096x4096x16", a, both(4096, 16), 50)
    product("gemm 64x576x65536 nt", both(64, 65536), turned(both(576, 65536)), 20)
    (x, tx), (y, ty) = both(64, 1024, 1024), both(64, 1024, 1024)
    measure("add 67M", lambda: vsl.run("add", x, y), lambda: tx + ty, 40)
    measure("gelu 67M", lambda: vsl.run("gelu", x), lambda: torch.nn.functional.gelu(tx), 40)
    measure("sum 67M", lambda: vsl.run("sum", x), tx.sum, 40)
    measure("softmax rows of 1024", lambda: vsl.run("softmax", x, axis=-1), lambda: tx.softmax(-1), 40)
    _lines(spec, both, measure, rng)
    _moves(spec, both, measure, rng)
    (small, tsmall), (other, tother) = both(64, 10), both(64, 10)
    measure("add 640, a dispatch", lambda: vsl.run("add", small, other), lambda: tsmall + tother, 2000)
    if spec.startswith(
        "vulkan"
    ):  # what recording itself takes: the barrier that this one needs, its parameters, itself
        again = _recorded(backend, lambda: vsl.run("add", small, other))
        measure("record a dispatch", again, lambda: tsmall + tother, 1000)
    measure("record add 640", lambda: vsl.run("add", small, other), lambda: tsmall + tother, 1000)
    (image, timage), (weight, tweight) = both(64, 64, 32, 32), both(64, 64, 3, 3)
    measure("conv2d 64x64x32x32x64 forward", lambda: vsl.run("conv2d", image, weight, padding=1),
            lambda: torch.nn.functional.conv2d(timage, tweight, padding=1), 40)  # fmt: skip
    measure("conv2d 64x64x32x32x64 input", lambda: vsl.run("conv2d_input", image, weight, shape=image.shape, padding=1),
            lambda: torch.nn.grad.conv2d_input(timage.shape, tweight, timage, padding=1), 40)  # fmt: skip
    measure("conv2d 64x64x32x32x64 weight", lambda: vsl.run("conv2d_weight", image, image, shape=weight.shape, padding=1),
            lambda: torch.nn.grad.conv2d_weight(timage, tweight.shape, timage, padding=1), 40)  # fmt: skip
    print(keep())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
