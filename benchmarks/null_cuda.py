"""A CUDA device whose launches, products, convolutions and copies do nothing: what is left of a step is the host's work.

It is the tests' simulated device (packages/vsl_compute/tests) with its work left out: everything from the Tensor's method to the
call of the driver runs as on a card, and `launches`, `products` and `convolutions` count the calls.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "vsl_compute" / "tests"))
import simulated_cuda
from simulated_cublaslt import SimulatedCublasLt

from vsl_compute.backends.cuda.backend import CUDABackend
from vsl_compute.backends.cuda.cudnn import Cudnn, Graph, Problem


class _Driver(simulated_cuda.Simulation):
    """The module cupy, on which nothing runs."""

    def __init__(self) -> None:
        super().__init__()
        self.launches, addresses = 0, count(1 << 20, 1 << 26)
        runtime, driver, nvrtc = self.cuda.runtime, self.cuda.driver, self.cuda.nvrtc
        runtime.malloc, runtime.free = lambda nbytes: next(addresses), lambda address: None
        runtime.memcpyAsync = lambda out, x, nbytes, kind, stream: None
        runtime.streamSynchronize = lambda stream: None
        runtime.eventRecord = runtime.streamWaitEvent = lambda *arguments: None
        driver.launchKernel = self._count
        nvrtc.compileProgram = lambda program, options: None
        functions = count(1)
        module = SimpleNamespace(
            load=lambda binary: None, get_function=lambda name: SimpleNamespace(ptr=next(functions))
        )
        self.cuda.function.Module = lambda: module

    def _count(self, *arguments: Any) -> None:
        self.launches += 1


class _CublasLt(SimulatedCublasLt):
    """The library, whose products are not computed."""

    def __init__(self, backend: CUDABackend) -> None:
        super().__init__(backend)
        self.products = 0

    def matmul(self, *arguments: Any) -> None:
        self.products += 1


class _Plans:
    """A graph of one plan, as the frontend's own compiled one."""

    plans = (SimpleNamespace(cpp_index=0),)

    def __init__(self, library: _Cudnn) -> None:
        self._library = library
        self._lowered_graph = self

    def get_execution_plan_count(self) -> int:
        return 1

    def get_plan_name_at_index(self, index: int) -> str:
        return "nothing"

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 1 << 20

    def build_plan_at_index(self, index: int) -> None:
        pass

    def _execute_plan_at_index(self, given: Any, room: int, place: int, handle: int) -> None:
        self._library.convolutions += 1


class _Cudnn(Cudnn):
    """The library, whose convolutions are not computed."""

    def __init__(self, backend: CUDABackend) -> None:
        self.backend, self.most, self.refusals = backend, 1 << 30, ()
        self.handle, self.convolutions = SimpleNamespace(backend_handle=1), 0

    def close(self) -> None:
        pass

    def graph(self, problem: Problem) -> Graph:
        return Graph(self, _Plans(self), [SimpleNamespace(get_uid=lambda k=k: k) for k in range(3)])


class NullCUDA(CUDABackend):
    """The backend on such a device."""

    def __init__(self) -> None:
        self.device = _Driver()
        super().__init__(simulated_cuda.info(), self.device)
        self.tuner = simulated_cuda.Joining(self.info, self.queue.finish)
        self._products_library = self._cublas._library = _CublasLt(self)
        self._convolutions_library = self._convolutions._library = _Cudnn(self)

    def counts(self) -> dict[str, int]:
        """Calls since it was opened."""
        return {
            "launches": self.device.launches,
            "products": self._products_library.products,
            "convolutions": self._convolutions_library.convolutions,
        }


class NullDriver:
    """Gives the process this device under the name cuda."""

    name = "cuda"

    def __init__(self) -> None:
        self._backend: NullCUDA | None = None

    def devices(self) -> list[Any]:
        """One."""
        return [simulated_cuda.info()]

    def open(self, index: int) -> NullCUDA:
        """Open it."""
        return NullCUDA()


def install() -> None:
    """Make cuda:0 of this process the device that does nothing."""
    from vsl_compute import registry

    registry._drivers["cuda"] = NullDriver()
