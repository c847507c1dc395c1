"""Batches on the device before they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any

import numpy as np

import vtl_core as vtl
from vtl_core import AttributeValueError, Tensor
from vtl_core.arguments import explain
from vtl_data import DataLoader

Put = Callable[[Any], Callable[[], Any]]  # of a batch: begins to copy it; what comes back gives it


class PinnedPrefetcher:
    """The batches of `loader` as tensors on `device`, made and copied by a thread of its own while the device computes.

    At most `depth` batches are ready before they are asked for. They are the loader's, bit for bit and in its order; arrays
    in tuples, lists and dicts become tensors, floating ones of `dtype` where it is given, and what is no array stays what it
    is. On CUDA the copies run beside the kernels, from pinned memory on a stream of their own, on OpenCL through a second
    queue, on Vulkan through staging memory in the order of the device's work. On the CPU nothing is gained by being early:
    batches are made when they are asked for.

    What the loader, its data set or a copy raises is raised where the batch would have come. A loop that is left ends the
    thread, once the batch that it is at is made. Whatever else a loader has (its length, `state_dict`, `epoch`) is found here
    too: `state_dict` of a DataLoader counts the batches that came out of here. A loader that has a `state_dict` and no
    `through` does not say what was passed on: it is read when a batch is asked for, and only copied ahead of the step.

    Errors:  AttributeValueError for depth below 1
    """

    def __init__(
        self, loader: Iterable[Any], device: str, *, dtype: vtl.DType | str | None = None, depth: int = 2
    ) -> None:
        if type(depth) is not int or depth < 1:
            raise AttributeValueError(f"PinnedPrefetcher: depth={depth!r:.40} must be an int of at least 1")
        self.loader, self.device, self.dtype, self.depth = loader, device, dtype, depth

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # of an object that is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # what has none says so

    def __iter__(self) -> Iterator[Any]:
        if str(self.device).startswith("cpu"):
            return (self._put(batch)() for batch in self.loader)
        through: Callable[[Any], Iterator[Any]] | None = getattr(self.loader, "through", None)
        if through is not None:
            return through(lambda batches: ahead(batches, self._put, self.depth))
        if hasattr(self.loader, "state_dict"):
            return (self._put(batch)() for batch in self.loader)
        return ahead(iter(self.loader), self._put, self.depth)

    def _put(self, value: Any) -> Callable[[], Any]:
        """Begin to copy a batch; what comes back gives it."""
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            dtype = self.dtype if value.dtype.kind == "f" else None
            return vtl.upload_ahead(value, dtype=dtype, device=self.device)
        if isinstance(value, dict):
            coming = {key: self._put(part) for key, part in value.items()}
            return lambda: {key: take() for key, take in coming.items()}
        if isinstance(value, tuple | list):
            parts = [self._put(part) for part in value]
            made: Any = value._make if hasattr(value, "_make") else type(value)
            return lambda: made([take() for take in parts])
        if isinstance(value, Tensor):
            return lambda: value.to(self.device)
        return lambda: value


class DeviceLoader(PinnedPrefetcher):
    """A `vtl_data.DataLoader` whose batches are tensors on `device` (None: the default one), copied ahead of the step.

    `options` are the DataLoader's: batch_size, shuffle, drop_last, num_workers, seed, sampler, ...

    Errors:  as PinnedPrefetcher and DataLoader
    """

    def __init__(
        self,
        dataset: Any,
        /,
        *,
        device: str | None = None,
        dtype: vtl.DType | str | None = None,
        depth: int = 2,
        **options: Any,
    ) -> None:
        device = vtl.default_context().device if device is None else device
        super().__init__(DataLoader(dataset, **options), device, dtype=dtype, depth=depth)


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


_END = object()


def ahead(batches: Iterator[Any], put: Put, depth: int) -> Iterator[Any]:
    """What `put` makes of each batch, by a thread of its own, at most `depth` before they are asked for."""
    ready: SimpleQueue[Any] = SimpleQueue()
    room, stopping = threading.Semaphore(depth), threading.Event()

    def work() -> None:
        try:
            while room.acquire() and not stopping.is_set():
                batch = next(batches, _END)
                ready.put(_END if batch is _END else put(batch))
                if batch is _END:
                    return
        except BaseException as error:  # noqa: BLE001  # raised where the batch would have come
            ready.put(_Failure(error))

    worker = threading.Thread(target=work, name="vtl prefetch", daemon=True)
    worker.start()
    try:
        while (item := ready.get()) is not _END:
            if type(item) is _Failure:
                raise item.error
            room.release()
            yield item()
    finally:
        stopping.set()
        room.release()
        if worker is not threading.current_thread():  # where the garbage collector runs is nobody's choice
            worker.join()


explain(globals(), whole=True)
