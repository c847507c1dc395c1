"""Convolutions against PyTorch's on the same card, float32 without TF32: `python convolution.py vulkan|opencl|cuda [LAYER ...]`.

Images lie channels-last in both where a net would have them so, and as planes where they come from a data set; PyTorch's
output takes its input's format. Timed as in gpu_ops.py: blocks of calls in turn, the median of the paired ratios.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from gpu_ops import pair
from harness import Comparison, save

import vsl_compute as vsl

LAYERS = (
    #  layer                     N    C    H   filters taps stride channels-last
    ("3 x 3, planes",            64,  64,  32, 64,     3,   1,     False),
    ("3 x 3",                    64,  64,  32, 64,     3,   1,     True),
    ("SimpleCNN 1",              64,  3,   32, 32,     3,   1,     False),
    ("SimpleCNN 2",              64,  32,  16, 64,     3,   1,     True),
    ("ResNet-18 stem",           512, 3,   32, 64,     3,   1,     False),
    ("ResNet-18 stage 1",        512, 64,  32, 64,     3,   1,     True),
    ("ResNet-18 stage 2",        512, 128, 16, 128,    3,   1,     True),
    ("ResNet-18 stage 3",        512, 256, 8,  256,    3,   1,     True),
    ("ResNet-18 stage 4",        512, 512, 4,  512,    3,   1,     True),
    ("ResNet-18 down",           512, 64,  32, 128,    3,   2,     True),
    ("ResNet-18 shortcut",       512, 64,  32, 128,    1,   2,     True),
    ("1 x 1",                    512, 256, 8,  256,    1,   1,     True),
)  # fmt: skip


def layer(spec: str, name: str, n: int, channels: int, size: int, filters: int, taps: int, stride: int, last: bool) -> list[Comparison]:  # fmt: skip
    """One layer's three ops."""
    backend: Any = vsl.get(spec)
    put, rng, pad = vsl.ComputeContext(spec).asarray, np.random.default_rng(0), taps // 2
    format_ = torch.channels_last if last else torch.contiguous_format

    def image(*shape: int) -> tuple[Any, Any]:
        array = rng.standard_normal(shape, dtype=np.float32)
        ours = put(np.ascontiguousarray(array.transpose(0, 2, 3, 1))).permute((0, 3, 1, 2)) if last else put(array)
        return ours, torch.from_numpy(array).cuda().contiguous(memory_format=format_)

    out = (size + 2 * pad - taps) // stride + 1
    (x, tx), (g, tg) = image(n, channels, size, size), image(n, filters, out, out)
    weights = rng.standard_normal((filters, channels, taps, taps), dtype=np.float32)
    w, tw = put(weights), torch.from_numpy(weights).cuda()
    options = {"stride": (stride, stride), "padding": (pad, pad)}

    def peer(*mask: bool) -> object:
        sides = [stride] * 2, [pad] * 2, [1, 1]
        return torch.ops.aten.convolution_backward(tg, tx, tw, None, *sides, False, [0, 0], 1, [*mask, False])

    ops = {
        "forward": (lambda: vsl.run("conv2d", x, w, **options),
                    lambda: torch.nn.functional.conv2d(tx, tw, stride=stride, padding=pad)),
        "input": (lambda: vsl.run("conv2d_input", g, w, shape=x.shape, **options), lambda: peer(True, False)),
        "weight": (lambda: vsl.run("conv2d_weight", g, x, shape=w.shape, **options), lambda: peer(False, True)),
    }  # fmt: skip
    results = []
    for op, (ours, other) in ops.items():
        results.append(pair(f"{name} {op}", ours, backend.synchronize, other, 10))
        print(results[-1], flush=True)
    return results


def main(spec: str, names: list[str]) -> None:
    """Measure every layer, or those of these names, print and save."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    results = [found for row in LAYERS if not names or row[0] in names for found in layer(spec, *row)]
    info = vsl.get(spec).info
    name = f"convolution-{spec.partition(':')[0]}"
    print(save(name, results, device=info.name, driver=info.driver, torch=torch.__version__))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
