"""The convolutions and products of ResNet-18 (CIFAR stem) against PyTorch's: `python gpu_shapes.py PRECISION [BATCH]`.

PRECISION is strict, tf32, float16 or bfloat16, a process each; BATCH is 64 or 512. PyTorch runs with cudnn.benchmark from
the start, on tensors in the same order of axes: channels first in strict float32, channels last on tensor cores.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from gpu_ops import pair
from harness import Comparison, save

import vsl_compute as vsl
import vtl_core as vtl

# channels, size, filters, taps, stride: each convolution of the network once
CONVOLUTIONS = ((3, 32, 64, 3, 1), (64, 32, 64, 3, 1), (64, 32, 128, 3, 2), (64, 32, 128, 1, 2), (128, 16, 128, 3, 1), (128, 16, 256, 3, 2),
                (128, 16, 256, 1, 2), (256, 8, 256, 3, 1), (256, 8, 512, 3, 2), (256, 8, 512, 1, 2), (512, 4, 512, 3, 1))  # fmt: skip
PRECISIONS = {"strict": "float32", "tf32": "float32", "float16": "float16", "bfloat16": "bfloat16"}


def main(precision: str, batch: int) -> None:
    """Measure, print and save."""
    context = vsl.ComputeContext("cuda")
    backend: Any = context.backend
    vtl.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    rng = np.random.default_rng(0)
    results: list[Comparison] = []
    last = precision != "strict"

    def both(*shape: int) -> tuple[Any, Any]:
        array = rng.standard_normal(shape, dtype=np.float32)
        theirs = torch.from_numpy(array).cuda().to(getattr(torch, PRECISIONS[precision]))
        if last and len(shape) == 4:
            view = context.asarray(np.ascontiguousarray(array.transpose(0, 2, 3, 1)), PRECISIONS[precision])
            return view.permute((0, 3, 1, 2)), theirs.to(memory_format=torch.channels_last)
        return context.asarray(array, PRECISIONS[precision]), theirs

    def measure(name: str, ours: Any, peer: Any, calls: int) -> None:
        results.append(pair(name, ours, backend.synchronize, peer, calls))
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
                200,
            )
    finally:  # an interrupted run keeps what it has measured
        info = backend.info
        print(
            save(
                f"gpu-shapes-cuda-{precision}-{batch}",
                results,
                device=info.name,
                driver=info.driver,
                torch=torch.__version__,
            )
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 512)
