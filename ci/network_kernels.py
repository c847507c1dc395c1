"""The kernels of layers that `render.py` compiles: convolutions, attention, batch normalization."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product

from vsl_compute.dtypes import FLOATING, bfloat16, float16, float32
from vsl_compute.kernels import attention, batch_norm, batch_norm_text, convolution
from vsl_compute.kernels.shell import Kernel
from vsl_compute.rows.dialect import OPENCL, Dialect
from vsl_compute.rows.kinds import compute_dtype


def convolution_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Convolutions in every tile, form and dtype, with every way to load and none."""
    windows, taps = convolution.WINDOWS, convolution.TAPS
    for dtype, form in product(FLOATING, (windows, taps) if dialect is OPENCL else ()):
        table = convolution.WIDE_TILES if compute_dtype(dtype).itemsize == 8 else convolution.TILES
        for tile, choice in product({convolution.ALONE, *chain.from_iterable(table.values())}, (0, 1)):
            flags = (choice, choice, choice, choice, choice if form == windows else 0)
            values = (*tile[:5], tile.threads, int(tile.double), *flags, 3, 1 + choice, 1, 1, -1)
            yield convolution.render_convolution(form, dtype, values, fused=True)


def attention_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Attention in every form and narrow dtype, with every way to cut and load and none."""
    for dtype, (form, found), choice in product((float32, float16, bfloat16), attention.TILES.items(), (0, 1)):
        for tile in (attention.ALONE, next(t for t in found if t.shared(form, 64, 64) <= 48 << 10)):
            values = (*tile, tile.threads, 64 - choice, 64, 1 - choice, 1 + choice, 1 - choice, 1 - choice)
            yield attention.render_attention(form, dialect, dtype, values, fused=True)


def batch_norm_kernels(dialect: Dialect) -> Iterator[Kernel]:
    """Batch normalization's passes in every dtype, either order of memory, with and without what there may be."""
    shares = [batch_norm.Share(*given) for given in ((True, 4, 1, 256), (False, 4, 16, 256), (False, 1, 32, 256))]
    if dialect is OPENCL:
        shares += [batch_norm.Share(planes, 16, 1, 1) for planes in (True, False)]
    for x, share in product(FLOATING, shares):
        number = compute_dtype(x)
        for what in (
            *(batch_norm.Pass(name, x, parts=parts) for name in batch_norm.LEFT for parts in (False, True)),
            batch_norm.Pass("sums", x, number, number, relu=True, parts=True),
            batch_norm.Pass("sums", x, residual=True, parts=True),
            batch_norm.Pass("normalize", x),
            batch_norm.Pass("normalize", x, x, x, relu=True),
            batch_norm.Pass("normalize", x, number, number, relu=True, residual=True),
            batch_norm.Pass("back", x),
            batch_norm.Pass("back", x, number, number, relu=True),
        ):
            yield batch_norm_text.render_pass(what, dialect, share)
        if not dialect.counts:
            for name in batch_norm.LEFT:
                yield batch_norm_text.render_join(name, dialect, number, share)
