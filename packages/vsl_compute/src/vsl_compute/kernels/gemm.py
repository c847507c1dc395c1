"""Matrix products out = alpha * a @ b + beta * out, in two variants for two kinds of device.

  tile      a group of threads keeps a tile of a and of b in memory that it shares, each thread a part of the result in
            registers; for GPUs. The next tiles are on their way while these are multiplied.
  register  a thread keeps a part of the result in vector registers and reads a and b where they lie; for CPUs, and for
            runtimes whose groups have one thread. It is OpenCL C, whose vector types it is made of.
All three matrices have any strides, so transposition costs nothing; batches have up to four axes, of stride 0 where
they broadcast. 16-bit floats are loaded into float32 and rounded once; integers wrap. With beta 0, out is not read.
Terms are added in the order of k, so a result depends neither on the shape of the launch nor on the tile.
"""

from __future__ import annotations

from ..dtypes import DType
from ..rows.dialect import Dialect
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, prelude
from .gemm_register import Register
from .gemm_text import BATCH, BATCHED, FIELDS, Access, Tile, accesses, pack_of
from .gemm_tiled import Tiled
from .places import entry
from .shell import Kernel

# Measured on an H200 for float32: the largest reaches 0.8 of the peak of cuBLAS, the others what stands in `products.py`.
WIDE = Tile(128, 256, 8, 8, 16)
LARGE = Tile(128, 128, 8, 8, 8)
MIDDLE = Tile(64, 64, 16, 8, 4)
SMALL = Tile(64, 64, 16, 4, 4)
SLIM = Tile(64, 32, 16, 4, 4)
NARROW = Tile(32, 32, 16, 4, 4)
TILES = (WIDE, LARGE, MIDDLE, SMALL, SLIM, NARROW)
REGISTER, REGISTER_WIDE = Tile(4, 16, 1, 4, 16), Tile(4, 8, 1, 4, 8)  # for numbers of four and of eight bytes


def render_gemm(
    dialect: Dialect,
    dtype: DType,
    tile: Tile,
    *,
    shared: bool,
    fused: bool,
    access: Access | None = None,
    out: DType | None = None,
) -> Kernel:
    """A product of this dtype. Parameters: product (see `FIELDS`, then `BATCHED` [4]: all int64), out, a, b, alpha, beta.

    `shared` is the tile variant, to be launched with one group of `tile.threads` a tile; the register variant's tiles
    are spread over threads, any number of them. `fused` says that the device multiplies and adds in one instruction.
    `out` is the dtype of the result where it is not that of a and b.
    """
    access, out = access or Access(), out or dtype
    number = compute_dtype(dtype)
    name = f"gemm_{SHORT[dtype.name]}_" + (
        f"{tile.name}_{access.name}" if shared else f"{tile.rows}x{tile.columns}_register"
    )
    name += "" if out is dtype else f"_{SHORT[out.name]}"
    long, memory, element = dialect.types["int64"], dialect.memory, dialect.storage_of(dtype)
    fields = " ".join([*(f"{long} {f};" for f in FIELDS), *(f"{long} {f}[{BATCH}];" for f in BATCHED)])
    parameters = ["product p", f"{memory}{dialect.storage_of(out)} *out", f"const {memory}{element} *a", f"const {memory}{element} *b",
                  *(f"{dialect.type_of(number)} {s}" for s in ("alpha", "beta"))]  # fmt: skip
    text = Tiled(dialect, dtype, out, tile, fused, access) if shared else Register(dialect, dtype, out, tile, fused)
    head = prelude(dialect, [number], [dtype, out])
    head += f"#ifndef VSL_product\n#define VSL_product\ntypedef struct {{ {fields} }} product;\n#endif\n"
    threads = tile.threads if shared else 0
    return Kernel(name, head + text.types() + entry(dialect, name, parameters, text.lines(), threads=threads), (), ())


__all__ = [
    "BATCH",
    "BATCHED",
    "FIELDS",
    "REGISTER",
    "REGISTER_WIDE",
    "TILES",
    "Access",
    "Tile",
    "accesses",
    "pack_of",
    "render_gemm",
]
