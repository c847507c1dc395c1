"""Processes that make a loader's batches ahead of time, and the care that none hangs, lies or stays behind.

Worker w of W makes batches w, w + W, w + 2W, ... and writes them to a pipe of its own, from which the loader reads in
turn: the order is fixed, nothing is ever asked for, so nobody can wait in a circle, and a full pipe is all the
backpressure there is. Each worker keeps one finished batch waiting.
"""

from __future__ import annotations

import gc
import pickle
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vtl_data.errors import DataError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess


class Job(Protocol):
    """One epoch's work, the same in every process; a worker takes its share of it."""

    def share(self, worker: int, workers: int, *, seeded: bool) -> Iterator[tuple[int, Any]]:
        """Yield (number, batch) for every `workers`-th batch from the `worker`-th on; `seeded` calls seed_worker."""
        ...


class WorkerTraceback(Exception):
    """Where in the worker an exception came from, as text: never raised, only a __cause__."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class _Failure:
    error: Exception
    text: str


class _End:
    """A worker's last message."""


def seed_worker(seed: int, *place: int) -> None:
    """Seed NumPy's and Python's global generators for one place: (epoch,) of a stream, (epoch, batch) elsewhere.

    By batch rather than by worker: what a data set draws then depends neither on the number of workers nor on where
    an interrupted epoch was taken up, and no two workers draw alike.
    """
    import random

    words = np.random.SeedSequence(seed, spawn_key=place).generate_state(4)
    np.random.seed(words)  # noqa: NPY002 - users' data sets draw from the global generator; this is what seeds it
    random.seed(words.tobytes())


def _work(connection: Connection, inherited: tuple[Connection, ...], job: Job, worker: int, workers: int) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, which then ends the workers
    signal.signal(
        signal.SIGTERM, signal.SIG_DFL
    )  # what the parent does then, such as a checkpoint, is not a worker's to do
    gc.freeze()  # a collection here must not finalize what the parent made: device buffers, open files
    for other in inherited:
        other.close()
    try:
        for message in _messages(job, worker, workers):
            connection.send_bytes(message)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone
    finally:
        connection.close()


def _messages(job: Job, worker: int, workers: int) -> Iterator[bytes]:
    try:
        for number, batch in job.share(worker, workers, seeded=True):
            try:
                message = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                raise DataError(
                    f"DataLoader: batch {number} cannot be sent from its worker ({type(error).__name__}: {error}); "
                    "return arrays and numbers, or use num_workers=0"
                ) from error
            yield message
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
        import traceback

        text = "".join(traceback.format_exception(error))
        yield pickle.dumps(_Failure(_portable(error), f"in worker {worker}:\n{text}"))
        return
    yield pickle.dumps(_End())


def _portable(error: Exception) -> Exception:
    """Return `error` if it survives pickling as what it is, else a RuntimeError that says what it was."""
    substitute = RuntimeError(f"{type(error).__name__}: {error}")
    try:
        again = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - any failure means the same: it cannot travel
        return substitute
    return error if type(again) is type(error) and str(again) == str(error) else substitute


class Pool:
    """The workers of one pass over the data; `close` leaves none alive.

    Errors:  what a worker raised, of the same type and text, with the worker's traceback as its cause; RuntimeError
             with the exit code if a worker ends on its own, or after `timeout` seconds of silence
    """

    def __init__(self, job: Job, workers: int, method: str | None, timeout: float) -> None:
        import multiprocessing

        # fork, where it is safe: any data set works, picklable or not, its arrays are shared and not copied, and a
        # worker starts in milliseconds. The workers touch NumPy only, no device and no lock of the parent's threads.
        self.method = method or ("fork" if sys.platform == "linux" else "spawn")
        self.timeout = timeout
        self.processes: list[BaseProcess] = []
        self.connections: list[Connection] = []
        context = multiprocessing.get_context(self.method)
        try:
            for worker in range(workers):
                self._start(context, job, worker, workers)
        except BaseException:
            self.close()
            raise

    def _start(self, context: BaseContext, job: Job, worker: int, workers: int) -> None:
        ours, theirs = context.Pipe(duplex=False)
        self.connections.append(ours)
        inherited = tuple(self.connections) if self.method == "fork" else ()
        process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # each context has one, the base does not say so
            target=_work, args=(theirs, inherited, job, worker, workers), name=f"vtl-data-{worker}", daemon=True
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # see __init__
            try:
                process.start()
            finally:
                theirs.close()  # so that the worker's end is the only one, and its death is seen as an end of file
        self.processes.append(process)

    def batches(self) -> Iterator[Any]:
        """Yield every batch in order."""
        worker = 0
        while True:
            message = self._receive(worker)
            if isinstance(message, _Failure):
                raise message.error from WorkerTraceback(message.text)
            if isinstance(message, _End):
                return
            yield message
            worker = (worker + 1) % len(self.processes)

    def _receive(self, worker: int) -> Any:
        from multiprocessing.connection import wait

        connection, process = self.connections[worker], self.processes[worker]
        ready = wait([connection, process.sentinel], self.timeout or None)
        if not ready:
            raise RuntimeError(f"DataLoader: worker {worker} (pid {process.pid}) has sent nothing for {self.timeout} s")
        try:
            message = connection.recv_bytes() if connection in ready or connection.poll() else None
        except (EOFError, OSError):
            message = None  # the pipe ended: so has the worker
        if message is not None:
            return pickle.loads(message)
        import signal

        process.join(5)
        code = process.exitcode
        how = (
            f"was killed by signal {-code} ({signal.Signals(-code).name})"
            if code and code < 0
            else f"ended with exit code {code}"
        )
        hint = "; out of memory is the usual cause" if code == -9 else ""
        raise RuntimeError(f"DataLoader: worker {worker} (pid {process.pid}) {how} before its work was done{hint}")

    def close(self) -> None:
        """End every worker and wait for it."""
        for process in self.processes:
            process.kill()  # not terminate: a worker that just forked may still have the parent's handler for SIGTERM
        for process in self.processes:
            process.join()
            process.close()
        for connection in self.connections:
            connection.close()
        self.processes, self.connections = [], []
