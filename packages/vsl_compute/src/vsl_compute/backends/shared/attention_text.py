"""Launching attention on backends that compile C-like texts."""

from __future__ import annotations

from typing import Any

from ...kernels.attention import ARRAYS, Tile, fields, render_attention, tiles
from .attention import Arrays, Attentions, Launch
from .parameters import BUFFER, LONG, Compiled, struct_of


class TextAttention:
    """The attention of one backend, in groups of at most `threads`; `fused` as in `render_attention`."""

    def __init__(self, backend: Any, *, threads: int, shared_bytes: int, fused: bool, **options: Any) -> None:
        self.backend, self._threads, self._shared, self._fused = backend, threads, shared_bytes, fused
        self.ops = Attentions(backend, self, **options)
        self._kernels: dict[Any, Compiled] = {}

    def launch(self, launch: Launch, arrays: Arrays) -> None:
        """Enqueue one launch."""
        kernel = launch.kernel
        if kernel is None:
            kernel = launch.kernel = self._made(launch)
        places: list[Any] = []
        for name in ARRAYS:
            view = arrays.get(name) or arrays["a"]  # one that is not read needs an address all the same
            places += (view.buffer.handle, view.offset * (view.dtype.itemsize if name == "mask" else 1))
        across, down = launch.groups
        threads = launch.tile.threads
        self.backend.queue.run(kernel, (across * threads, down), (threads, 1), (launch.parameters, *places))

    def _made(self, launch: Launch) -> Compiled:
        key = launch.form, launch.dtype, launch.constants
        if key not in self._kernels:
            text = render_attention(
                launch.form, self.backend.dialect, launch.dtype, launch.constants, fused=self._fused
            )
            kinds = [struct_of(len(fields()) // 2), *[BUFFER, LONG] * len(ARRAYS)]
            self._kernels[key] = self.backend.programs.kernel(text, kinds)
        return self._kernels[key]

    def tiles(self, form: str, e: int, v: int) -> list[Tile]:
        """As kernels.attention.tiles, for this device."""
        return tiles(form, e, v, self._threads, self._shared)
