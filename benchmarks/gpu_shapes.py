"""The convolutions and products of ResNet-18 (CIFAR stem) against PyTorch's: `python gpu_shapes.py PRECISION [BATCH [default]]`.

PRECISION is strict, tf32, float16 or bfloat16, a process each; BATCH is 64 or 512. PyTorch runs with cudnn.benchmark from
the start, on tensors in the same order of axes: channels first in strict float32, channels last on tensor cores; with
`default` by its heuristic instead, on the four convolutions that issue 4 names.

What counts is the device's time: both run on one stream, and events of it stand before and after a block of calls that wait
behind a kernel which does nothing for longer than the host takes to enqueue them.
"""

from __future__ import annotations

import signal
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import Comparison, save

import vsl_compute as vsl
import vtl_core as vtl

# channels, size, filters, taps, stride: each convolution of the network once
CONVOLUTIONS = ((3, 32, 64, 3, 1), (64, 32, 64, 3, 1), (64, 32, 128, 3, 2), (64, 32, 128, 1, 2), (128, 16, 128, 3, 1), (128, 16, 256, 3, 2),
                (128, 16, 256, 1, 2), (256, 8, 256, 3, 1), (256, 8, 512, 3, 2), (256, 8, 512, 1, 2), (512, 4, 512, 3, 1))  # fmt: skip
PRECISIONS = {"strict": "float32", "tf32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
DEFAULT = ("64x64x32 K64 3x3/1 forward", "512x512x4 K512 3x3/1 forward", "512x512x4 K512 3x3/1 input", "512x128x16 K128 3x3/1 input")  # fmt: skip
ROUNDS = 9
HOST_CYCLES = 200_000  # of the device's clock, 100 us: more than the host takes for a call of either


def pair(name: str, ours: Callable[[], object], peer: Callable[[], object], calls: int) -> Comparison:
    """Device seconds of a call, in blocks of each in turn."""

    def block(call: Callable[[], object]) -> float:
        call()  # the memory that it wants is at hand afterwards
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HOST_CYCLES * calls)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / calls

    block(ours), block(peer)
    pairs = []
    for number in range(ROUNDS):
        left = block(ours) if number % 2 else 0.0
        right = block(peer)
        pairs.append((left or block(ours), right))
    ratios = [a / b for a, b in pairs]
    quarter = statistics.quantiles(ratios, n=4)
    return Comparison(name, "ours", "torch", statistics.median(ratios), (quarter[0], quarter[2]), statistics.median(a for a, _ in pairs),
                      statistics.median(b for _, b in pairs), ROUNDS)  # fmt: skip


def main(precision: str, batch: int, default: bool) -> None:
    """Measure, print and save."""
    context = vsl.ComputeContext("cuda")
    backend: Any = context.backend
    torch.cuda.set_stream(torch.cuda.ExternalStream(backend.queue.pointer))
    vtl.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = not default
    rng = np.random.default_rng(0)
    results: list[Comparison] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a limit's: what was measured is saved below
    last = precision != "strict"

    def both(*shape: int) -> tuple[Any, Any]:
        array = rng.standard_normal(shape, dtype=np.float32)
        theirs = torch.from_numpy(array).cuda().to(getattr(torch, PRECISIONS[precision]))
        if last and len(shape) == 4:
            view = context.asarray(np.ascontiguousarray(array.transpose(0, 2, 3, 1)), PRECISIONS[precision])
            return view.permute((0, 3, 1, 2)), theirs.to(memory_format=torch.channels_last)
        return context.asarray(array, PRECISIONS[precision]), theirs

    def measure(name: str, ours: Any, peer: Any, calls: int) -> None:
        if default and not name.endswith(DEFAULT):
            return
        results.append(pair(name, ours, peer, calls))
        print(results[-1], flush=True)

    try:
        for channels, size, filters, taps, stride in CONVOLUTIONS:
            padding, out = taps // 2, (size - 1) // stride + 1
            (x, tx), (w, tw), (g, tg) = (
                both(batch, channels, size, size),
                both(filters, channels, taps, taps),
                both(batch, filters, out, out),
            )
            options: dict[str, Any] = {"stride": stride, "padding": padding}
            name = f"{precision} conv {batch}x{channels}x{size} K{filters} {taps}x{taps}/{stride}"
            calls = 20 if batch <= 64 else 5

            def backward(
                mask: list[bool], tg: Any = tg, tx: Any = tx, tw: Any = tw, s: int = stride, p: int = padding
            ) -> Any:
                return torch.ops.aten.convolution_backward(
                    tg, tx, tw, None, [s, s], [p, p], [1, 1], False, [0, 0], 1, mask
                )

            measure(f"{name} forward", lambda x=x, w=w, o=options: vsl.run("conv2d", x, w, **o),
                    lambda tx=tx, tw=tw, s=stride, p=padding: torch.nn.functional.conv2d(tx, tw, stride=s, padding=p), calls)  # fmt: skip
            if channels > 3:
                measure(f"{name} input", lambda g=g, w=w, x=x, o=options: vsl.run("conv2d_input", g, w, shape=x.shape, **o),
                        lambda f=backward: f([True, False, False]), calls)  # fmt: skip
            measure(f"{name} weight", lambda g=g, w=w, x=x, o=options: vsl.run("conv2d_weight", g, x, shape=w.shape, **o),
                    lambda f=backward: f([False, True, False]), calls)  # fmt: skip
        (x, tx), (w, tw), (g, tg) = both(batch, 512), both(10, 512), both(batch, 10)
        for name, a, b, ta, tb in (
            ("forward", x, w.permute((1, 0)), tx, tw.t()),
            ("input", g, w, tg, tw),
            ("weight", g.permute((1, 0)), x, tg.t(), tx),
        ):
            measure(
                f"{precision} linear {batch}x512x10 {name}",
                lambda a=a, b=b: vsl.run("matmul", a, b),
                lambda a=ta, b=tb: a @ b,
                20,
            )
    finally:  # an interrupted run keeps what it has measured
        info = backend.info
        print(
            save(
                f"gpu-shapes-cuda-{precision}-{batch}{'-default' * default}",
                results,
                device=info.name,
                driver=info.driver,
                torch=torch.__version__,
            )
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 512, "default" in sys.argv)
