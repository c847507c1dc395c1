"""Draw the picture of Shapes that the documentation shows: `python draw_shapes.py shapes.png` (needs Pillow)."""

import sys

import numpy as np
from PIL import Image

from vtl_data import Shapes


def sheet(columns: int = 8, side: int = 48, gap: int = 4) -> Image.Image:
    """Return one row of samples for each class, every sample enlarged to `side` pixels."""
    shapes = Shapes(10 * columns)
    step = side + gap
    result = Image.new("RGB", (columns * step + gap, 10 * step + gap), "white")
    for label in range(10):
        for column, index in enumerate(np.flatnonzero(shapes.labels == label)):
            tile = Image.fromarray(shapes.images[index].transpose(1, 2, 0)).resize(
                (side, side), Image.Resampling.BICUBIC
            )
            result.paste(tile, (gap + column * step, gap + label * step))
    return result.quantize(256, kmeans=4)  # a palette: a third of the bytes


if __name__ == "__main__":
    sheet().save(sys.argv[1], optimize=True)
