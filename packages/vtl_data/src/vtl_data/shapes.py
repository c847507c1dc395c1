"""Shapes: ten classes of drawn images that need no files, and that no classifier without an eye for form tells apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from vtl_data.arguments import truth, whole
from vtl_data.dataset import TensorDataset
from vtl_data.draw import Array, Draw

Plane = npt.NDArray[np.float32]  # (N, 32, 32), one number a pixel
Form = Callable[[Plane, Plane], Plane]  # signed distance of points (x, y), negative inside

_SIDE = 32
_CHUNK = 256  # images at a time: their planes stay in the cache


def _polygon(corners: list[tuple[float, float]]) -> Form:
    """Return the signed distance to a closed polygon, negative inside (Quilez, "2D distance functions")."""

    def distance(x: Plane, y: Plane) -> Plane:
        nearest = np.full_like(x, np.inf)
        inside = np.zeros(x.shape, bool)
        for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
            ex, ey = bx - ax, by - ay
            along = np.clip(((x - ax) * ex + (y - ay) * ey) / (ex * ex + ey * ey), 0, 1)
            nearest = np.minimum(nearest, (x - ax - ex * along) ** 2 + (y - ay - ey * along) ** 2)
            if ey != 0:
                inside ^= ((ay > y) != (by > y)) & (x < ax + (y - ay) * (ex / ey))
        return np.asarray(np.where(inside, -np.sqrt(nearest), np.sqrt(nearest)), np.float32)

    return distance


def _circle(x: Plane, y: Plane) -> Plane:
    return np.asarray(np.hypot(x, y) - 1, np.float32)


def _ring(x: Plane, y: Plane) -> Plane:
    return np.asarray(np.abs(np.hypot(x, y) - 0.75) - 0.25, np.float32)


def _crescent(x: Plane, y: Plane) -> Plane:
    return np.asarray(np.maximum(np.hypot(x, y) - 1, 0.82 - np.hypot(x - 0.5, y)), np.float32)


def _heart(x: Plane, y: Plane) -> Plane:
    # Two discs over a square that stands on its corner; y points down, so the corner has the largest y.
    diamond = (np.abs(x) + np.abs(y - 0.1) - 0.95) * 0.7071
    discs = np.hypot(np.abs(x) - 0.475, y + 0.375) - 0.67
    return np.asarray(np.minimum(diamond, discs), np.float32)


def _star(points: int, inner: float) -> list[tuple[float, float]]:
    angles = np.arange(2 * points) * (np.pi / points) - np.pi / 2
    radii = np.where(np.arange(2 * points) % 2, inner, 1.0)
    return [(float(r * np.cos(a)), float(r * np.sin(a))) for r, a in zip(radii, angles, strict=True)]


def _cross(width: float) -> list[tuple[float, float]]:
    w = width
    quarter = [(w, -1.0), (w, -w), (1.0, -w)]
    corners = []
    for _ in range(4):
        corners += quarter
        quarter = [(-y, x) for x, y in quarter]
    return corners


_ARROW = [(0.0, -1.0), (0.8, -0.05), (0.3, -0.05), (0.3, 1.0), (-0.3, 1.0), (-0.3, -0.05), (-0.8, -0.05)]
_HOURGLASS = [(-0.75, -1.0), (0.75, -1.0), (0.12, 0.0), (0.75, 1.0), (-0.75, 1.0), (-0.12, 0.0)]

_FORMS: dict[str, Form] = {
    "circle": _circle,
    "square": _polygon([(-1, -1), (1, -1), (1, 1), (-1, 1)]),
    "triangle": _polygon([(0, -1), (0.866, 0.5), (-0.866, 0.5)]),
    "star": _polygon(_star(5, 0.42)),
    "cross": _polygon(_cross(0.32)),
    "ring": _ring,
    "crescent": _crescent,
    "heart": _heart,
    "arrow": _polygon(_ARROW),
    "hourglass": _polygon(_HOURGLASS),
}


@cache
def _area(form: Form) -> float:
    """Return the area of a form in its own units, from 200 x 200 points."""
    axis = np.linspace(-1.5, 1.5, 200, dtype=np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    return float(np.mean(form(x[None], y[None]) < 0) * 9)


class Shapes(TensorDataset):
    """Drawn images of ten classes: circle, square, triangle, star, cross, ring, crescent, heart, arrow, hourglass.

    Colours, size, rotation, position and background (a gradient, a pattern of waves and noise) are drawn from
    (seed, train, index): image i is the same whatever `count` is, training and test images share no random number,
    and every ten in turn hold each class once. All classes cover the same area and are as often darker as lighter
    than what is behind them, so neither colours nor single pixels tell the class: it takes an eye for edges.

    Shapes:  images (count, 3, 32, 32), planes red, green, blue; labels (count,)
    Dtypes:  uint8; int64
    Errors:  ValueError if count is negative
    Cost:    about 0.1 ms an image
    """

    classes = tuple(_FORMS)

    def __init__(
        self, count: int, train: bool = True, seed: int = 0, transform: Callable[[Array], Array] | None = None
    ) -> None:
        count = whole("Shapes", "count", count, 0)
        self.train, self.seed = truth("Shapes", "train", train), whole("Shapes", "seed", seed)
        self.images = np.empty((count, 3, _SIDE, _SIDE), np.uint8)
        blocks = self._draw(np.arange(-(-count // 10) * 10)).with_stream(1).bits(1).reshape(-1, 10)
        self.labels = np.argsort(blocks, axis=1).reshape(-1)[:count].astype(np.int64)
        for start in range(0, count, _CHUNK):
            indices = np.arange(start, min(start + _CHUNK, count))
            self.images[indices] = _paint(self._draw(indices), self.labels[indices])
        self._hold((self.images, self.labels), transform)

    def _draw(self, indices: npt.NDArray[np.int64]) -> Draw:
        return Draw(self.seed, 0, indices, stream=1 if self.train else 2)


def _paint(draw: Draw, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Draw one image for each label.

    Shapes:  labels (N,); result (N, 3, 32, 32)
    Units:   lengths are pixels, colours 0 .. 1
    """
    u = draw.with_stream(2).uniform(24).astype(np.float32)[:, :, None, None]  # (N, 24, 1, 1)
    area = 150 + 160 * u[:, 0]
    turn = (u[:, 1] - 0.5) * np.float32(np.pi / 4)
    cx, cy = 16 + (u[:, 2] - 0.5) * 7, 16 + (u[:, 3] - 0.5) * 7
    axis = np.arange(_SIDE, dtype=np.float32) + 0.5
    dx, dy = axis[None, None, :] - cx, axis[None, :, None] - cy
    x, y = dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)
    cover = np.empty((len(labels), _SIDE, _SIDE), np.float32)
    for label, form in enumerate(_FORMS.values()):
        mine = np.flatnonzero(labels == label)
        unit = np.sqrt(area[mine] / np.float32(_area(form)))  # pixels in one of the form's units
        cover[mine] = np.clip(0.5 - form(x[mine] / unit, y[mine] / unit) * unit, 0, 1)

    # Light and dark: the form is brighter or darker than the ground by `contrast`, either way as often.
    ground = 0.25 + 0.5 * u[:, 4]
    contrast = 0.35 + 0.25 * u[:, 5]
    up = np.where(ground + contrast > 1, False, np.where(ground - contrast < 0, True, u[:, 6] < 0.5))
    figure = np.where(up, ground + contrast, ground - contrast)
    tint = (u[:, 7:13] - 0.5) * 0.4
    tint[:, :3] -= tint[:, :3].mean(axis=1, keepdims=True)
    tint[:, 3:] -= tint[:, 3:].mean(axis=1, keepdims=True)

    angle = u[:, 13] * np.float32(2 * np.pi)
    gradient = (dx * np.cos(angle) + dy * np.sin(angle)) / _SIDE * (0.3 * u[:, 14])
    bearing, wavelength = u[:, 15] * np.float32(2 * np.pi), 4 + 12 * u[:, 16]
    waves = np.sin((dx * np.cos(bearing) + dy * np.sin(bearing)) * (2 * np.pi / wavelength) + 2 * np.pi * u[:, 17])
    scene = ground + gradient + waves * (0.1 * u[:, 18])
    grain = draw.with_stream(3).bits(3 * _SIDE * _SIDE // 8).view(np.uint8).reshape(-1, 3, _SIDE, _SIDE)
    noise = (grain.astype(np.float32) * np.float32(1 / 255) - 0.5) * (0.05 + 0.1 * u[:, 19:20])

    back = scene[:, None] + tint[:, :3]
    front = figure[:, None] + tint[:, 3:]
    image = back + (front - back) * cover[:, None] + noise
    pixels: npt.NDArray[np.uint8] = (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)
    return pixels
