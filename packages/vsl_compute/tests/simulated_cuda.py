"""A CUDA device in host memory: what the backend asks of CuPy and cuBLAS, done by the C++ compiler and by NumPy.

Kernels are the backend's own texts, compiled as C++; a launch runs their threads one after another, or as fibers where
they meet at barriers. So launches, parameters, copies and products are the ones a device would get; speed and NVRTC are
not part of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

from simulated_cublaslt import SimulatedCublasLt  # conftest.py has brought it, or this folder is on the path

from vsl_compute.backend import DeviceInfo
from vsl_compute.backends.cuda.backend import CUDABackend
from vsl_compute.backends.shared.tuning import Tuner
from vsl_compute.dtypes import ALL
from vsl_compute.errors import UnavailableError
from vsl_compute.rows.dialect import CUDA, OPENCL

COMPILER = shutil.which("clang++") or shutil.which("g++")
MEMORY = 1 << 34
STREAM = 77
HEAD = """
#include <math.h>
#include <string.h>
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(threads)
struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;
static inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static inline float __int_as_float(int u) { float f; memcpy(&f, &u, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
static inline double __longlong_as_double(long long u) { double f; memcpy(&f, &u, 8); return f; }
typedef unsigned uint;
typedef unsigned short ushort;
#define as_float __uint_as_float
#define as_uint __float_as_uint
static inline void __threadfence() {}
static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long n) { const unsigned long long old = *p; *p += n; return old; }
static inline long long __double_as_longlong(double f) { long long u; memcpy(&u, &f, 8); return u; }
"""
ENTRY = r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\)'
FIBERS = """
#include <ucontext.h>
static ucontext_t outside, inside[1024];
static bool over[1024];
static char stacks[1024][1 << 16];
static unsigned now;
static void __syncthreads() { swapcontext(&inside[now], &outside); }
"""


class RuntimeFault(RuntimeError):
    """As CuPy's CUDARuntimeError."""

    def __init__(self, status, words="simulated"):
        super().__init__(words)
        self.status = status


class DriverFault(RuntimeFault):
    """As CuPy's CUDADriverError."""


class CompilerFault(RuntimeError):
    """As CuPy's NVRTCError."""


def as_cpp(text):
    """The text, and for each kernel a function that runs a grid of it."""
    for name in ("half_store_double", "half_store", "half_load"):  # PTX, which OpenCL C does by hand
        text = text.replace(CUDA.bits[name], OPENCL.bits[name])
    fibers = "__syncthreads" in text
    runners = []
    for name, parameters in re.findall(ENTRY, text):
        types = [re.sub(r"\w+$", "", part.strip()) for part in parameters.split(",")]
        fields = " ".join(f"{t} a{k};" for k, t in enumerate(types))
        call = f"{name}({', '.join(f'p.a{k}' for k in range(len(types)))})"
        runners.append(f"struct P_{name} {{ {fields} }};\n" + _runner(name, call, fibers))
    return HEAD + (FIBERS if fibers else "") + text + "".join(runners)


def _runner(name, call, fibers):
    each = f"threadIdx = Dim{{t % bx, t / bx, 0}}; {call};"
    before = ""
    if fibers:
        before = f"static P_{name} *g_{name};\nstatic void fiber_{name}() {{ P_{name} &p = *g_{name}; {call}; over[now] = true; }}\n"
        each = f"""getcontext(&inside[t]); inside[t].uc_stack.ss_sp = stacks[t]; inside[t].uc_stack.ss_size = sizeof stacks[t];
            inside[t].uc_link = &outside; over[t] = false; makecontext(&inside[t], fiber_{name}, 0);"""
    body = f"for (unsigned t = 0; t < bx * by; ++t) {{ {each} }}"
    if fibers:
        body += f"""
        g_{name} = &p;
        for (bool any = true; any;) {{
            any = false;
            for (unsigned t = 0; t < bx * by; ++t) if (!over[t]) {{
                any = true; now = t; threadIdx = Dim{{t % bx, t / bx, 0}}; swapcontext(&outside, &inside[t]);
            }}
        }}"""
    return f"""{before}
extern "C" int run_{name}(const char *bytes, unsigned long long nbytes, unsigned gx, unsigned gy, unsigned bx, unsigned by)
{{
    if (nbytes + 8 <= sizeof(P_{name}) || nbytes > sizeof(P_{name})) return 1;
    P_{name} p; memcpy((void *)&p, bytes, nbytes);
    blockDim = Dim{{bx, by, 1}}; gridDim = Dim{{gx, gy, 1}};
    for (unsigned y = 0; y < gy; ++y) for (unsigned x = 0; x < gx; ++x) {{
        blockIdx = Dim{{x, y, 0}};
        {body}
    }}
    return 0;
}}
"""


class Simulation:
    """The module cupy, as far as the backend knows it. `launches` counts them; `free` is what the device still holds."""

    __version__ = "14.0.0"

    def __init__(self, devices=1, memory=MEMORY):
        self.launches, self.memory, self.held = 0, memory, {}
        self.devices = devices
        self.fault = None  # raised by the next call
        self.off = False
        self.order = []  # events recorded in streams, and streams that wait for one
        # copies of streams other than the first are done as late as can be: when an event behind them is waited for
        self.streams, self.late, self.events = 0, {}, {}
        self._here = threading.local()
        self._lock = threading.Lock()
        self._functions = {}
        libc = self._libc = ctypes.CDLL(None)
        libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t] * 2
        libc.free.argtypes = [ctypes.c_void_p]
        runtime = SimpleNamespace(
            CUDARuntimeError=RuntimeFault, getDeviceCount=lambda: self.devices, driverGetVersion=lambda: 12090,
            runtimeGetVersion=lambda: 12090, getDeviceProperties=self._properties, setDevice=self._set_device, malloc=self._malloc,
            free=self._free, memcpyAsync=self._copy, streamSynchronize=self._synchronize, eventRecord=self._record,
            streamWaitEvent=self._wait,
        )  # fmt: skip
        driver = SimpleNamespace(
            CUDADriverError=DriverFault, ctxGetCurrent=lambda: getattr(self._here, "context", 0), ctxSetCurrent=self._set_context,
            launchKernel=self._launch, funcGetAttribute=lambda attribute, function: 1024, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK=0,
        )  # fmt: skip
        nvrtc = SimpleNamespace(
            NVRTCError=CompilerFault, getSupportedArchs=lambda: (80, 90), getVersion=lambda: (12, 9), createProgram=self._program,
            compileProgram=self._compile, getCUBIN=lambda p: p.binary, getProgramLog=lambda p: p.log, destroyProgram=lambda p: None,
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            runtime=runtime, driver=driver, nvrtc=nvrtc, function=SimpleNamespace(Module=lambda: _Module(self)),
            Stream=self._stream, Event=lambda disable_timing: _Event(self), alloc_pinned_memory=_Pinned,
        )  # fmt: skip

    def switch_off(self):
        """Free what the device holds, whoever refers to it still."""
        self.off = True
        for address in self.held:
            self._libc.free(address)
        self.held.clear()

    def _check(self):
        assert not self.off, "this simulated device was a test's before"
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault

    def _properties(self, index):
        return {
            "name": f"Simulated {index}".encode(), "multiProcessorCount": 4, "major": 9, "minor": 0, "integrated": 0,
            "totalGlobalMem": self.memory, "maxThreadsPerMultiProcessor": 512,
        }  # fmt: skip

    def _set_device(self, index):
        self._here.context = 1000 + index

    def _set_context(self, context):
        self._here.context = context

    def _malloc(self, nbytes):
        self._check()
        if sum(self.held.values()) + nbytes > self.memory:
            raise RuntimeFault(2, "cudaErrorMemoryAllocation: out of memory")
        address = self._libc.aligned_alloc(512, -(-nbytes // 512) * 512)
        ctypes.memset(address, 0xFF, nbytes)  # NaN, whatever it is read as
        self.held[address] = nbytes
        return address

    def _free(self, address):
        if self.off:
            return
        del self.held[address]
        self._libc.free(address)

    def _copy(self, out, x, nbytes, kind, stream):
        self._check()
        if stream == STREAM:
            ctypes.memmove(out, x, nbytes)
        else:
            self.late.setdefault(stream, []).append((out, x, nbytes))

    def _stream(self, non_blocking):
        self.streams += 1
        return SimpleNamespace(ptr=STREAM + self.streams - 1)

    def _record(self, event, stream):
        self.order.append(("record", stream))
        self.events[event] = stream, len(self.late.get(stream, ()))

    def _wait(self, stream, event):
        self.order.append(("wait", stream))
        if stream == STREAM:
            self.arrived(event)

    def _synchronize(self, stream):
        self._check()
        self._do(stream, len(self.late.get(stream, ())))

    def arrived(self, event):
        """Do what was copied before an event was recorded."""
        if event in self.events:
            self._do(*self.events[event])

    def _do(self, stream, count):
        copies = self.late.get(stream, [])
        for k in range(count):
            if copies[k] is not None:
                ctypes.memmove(*copies[k])
                copies[k] = None

    def _program(self, text, name, headers, includes):
        return SimpleNamespace(text=text, binary=b"", log="")

    def _compile(self, program, options):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "kernel.so")
            command = [
                COMPILER,
                "-x",
                "c++",
                "-std=c++17",
                "-O1",
                "-w",
                "-ffp-contract=off",
                "-shared",
                "-fPIC",
                "-o",
                out,
                "-",
            ]
            done = subprocess.run(command, input=as_cpp(program.text), capture_output=True, text=True, check=False)
            if done.returncode:
                program.log = done.stderr
                raise CompilerFault("NVRTC_ERROR_COMPILATION (6)")
            program.binary = out.read_bytes()

    def _launch(self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        self._check()
        assert 0 < gx < 2**31
        assert 0 < gy < 2**16
        assert 0 < bx * by <= 1024
        pointer, address, size, nbytes, end = (ctypes.c_void_p * 5).from_address(extra)
        assert (pointer, size, end) == (1, 2, None)
        assert self.cuda.driver.ctxGetCurrent() >= 1000, "no context is current"
        with self._lock:
            self.launches += 1
            nbytes = ctypes.c_uint64.from_address(nbytes).value
            assert self._functions[function](ctypes.c_void_p(address), ctypes.c_uint64(nbytes), gx, gy, bx, by) == 0, (
                "wrong size of parameters"
            )


class _Module:
    def __init__(self, simulation):
        self.simulation = simulation

    def load(self, binary):
        if binary[:4] != b"\x7fELF":
            raise DriverFault(200, "CUDA_ERROR_INVALID_IMAGE")
        with tempfile.TemporaryDirectory() as folder:  # of its own: other processes load the same binary
            path = Path(folder, "kernel.so")
            path.write_bytes(binary)
            self.compiled = ctypes.CDLL(str(path))

    def get_function(self, name):
        function = getattr(self.compiled, f"run_{name}")
        key = ctypes.cast(function, ctypes.c_void_p).value
        self.simulation._functions[key] = function
        return SimpleNamespace(ptr=key)


class _Event:
    def __init__(self, simulation):
        self.simulation, self.ptr = simulation, id(self)

    def __del__(self):
        self.simulation.events.pop(self.ptr, None)

    def record(self, stream):
        self.simulation._record(self.ptr, stream.ptr)

    def synchronize(self):
        self.simulation.arrived(self.ptr)


class _Pinned(bytearray):
    @property
    def ptr(self):
        return ctypes.addressof((ctypes.c_char * len(self)).from_buffer(self))


def info(index=0, memory=MEMORY):
    """What the driver would say of a simulated device."""
    return DeviceInfo(
        f"cuda:{index}",
        "cuda",
        index,
        f"Simulated {index}",
        "discrete",
        memory,
        tuple(d.name for d in ALL),
        "simulated",
    )


class Joining(Tuner):
    """The table's choices, but epilogues where there are any: what nobody takes is not judged."""

    def choose(self, key, candidates, trial):
        return candidates["joined"] if "joined" in candidates else super().choose(key, candidates, trial)


OPENED = []  # by the test that runs


def opened(**options):
    """A backend on a simulated device, for one test."""
    backend = _made(**options)
    OPENED.append(backend)
    return backend


def switch_off():
    """Free what the devices of a test hold outside Python's memory: plans of dispatch refer to a backend for long."""
    for backend in OPENED:
        backend.cupy.switch_off()
        backend.queue._staging = None
    OPENED.clear()


def _made(**options):
    simulation = Simulation(**options)
    backend = CUDABackend(info(memory=simulation.memory), simulation)
    backend._cublas._library = SimulatedCublasLt(backend)
    backend.tuner = Joining(backend.info, backend.queue.finish)
    for op in backend._convolutions.overrides():  # cuDNN is not simulated
        del backend._overrides[op], backend._preparing[op]
    backend._overrides |= backend._attention._tiled.overrides()
    backend._attention._tiled._fits = lambda nbytes: False  # with overrides on, our kernels; without, the body
    return backend


class SimulatedDriver:
    """Stands in for the backend's driver, for suites that open devices by name."""

    name = "cuda"

    def __init__(self):
        self._opened = None

    def devices(self):
        return [info()]

    def open(self, index):
        if index:
            raise UnavailableError(f"cuda:{index}: there is no such device")
        return _made()


with contextlib.suppress(ImportError):
    import pytest

    @pytest.hookimpl
    def pytest_configure(config):
        """As a plugin, the process has this device under the name cuda."""
        from vsl_compute import registry

        registry._drivers["cuda"] = SimulatedDriver()
