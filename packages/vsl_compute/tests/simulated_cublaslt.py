"""cuBLASLt's calls that the backend makes, done by NumPy on the memory of a simulated device (see simulated_cuda.py)."""

from __future__ import annotations

import ctypes

import numpy as np

from vsl_compute.backends.cuda.cublaslt import BIAS, RELU_BIAS, CublasLt
from vsl_compute.dtypes import bfloat16_to_float32, float32_to_bfloat16


class SimulatedCublasLt(CublasLt):
    """The library's calls on strided arrays of NumPy. `made` lists (m, n, k, products) of each; `tf32` says how each was computed."""

    def __init__(self, backend):
        self.calls, self._backend, self.handle, self.workspace = self, backend, 5, 6
        self.made, self.tf32, self.things = [], [], {}

    cuBLASLtError = type("cuBLASLtError", (Exception,), {})

    def close(self):
        assert not self.things, "something was not given back"

    def matmul_desc_create(self, compute, scale):
        return self._new({"compute": compute, "scale": scale})

    def matrix_layout_create(self, kind, rows, columns, line):
        assert line >= max(1, rows)
        assert min(rows, columns) > 0
        return self._new({"kind": kind, "rows": rows, "columns": columns, "line": line})

    def matmul_preference_create(self):
        return self._new({})

    def _new(self, fields):
        self.count = getattr(self, "count", 1000) + 1
        self.things[self.count] = fields
        return self.count

    def matmul_desc_set_attribute(self, thing, attribute, address, nbytes):
        self.things[thing][attribute] = int.from_bytes(ctypes.string_at(address, nbytes), "little")

    matrix_layout_set_attribute = matmul_preference_set_attribute = matmul_desc_set_attribute

    def matmul_desc_destroy(self, thing):
        del self.things[thing]

    matrix_layout_destroy = matmul_preference_destroy = matmul_desc_destroy

    def matmul_algo_get_heuristic(self, handle, description, first, second, c, d, preference, wanted, results, found):
        assert {1, 3, 5, 6, 7, 8} <= set(self.things[preference])
        self.alignment = self.things[preference][5]
        ctypes.c_int32.from_address(found).value = 1
        ctypes.c_uint64.from_address(results).value = self.alignment

    def matmul(
        self,
        handle,
        description,
        alpha,
        a,
        first,
        b,
        second,
        beta,
        c,
        c_layout,
        d,
        d_layout,
        algorithm,
        workspace,
        nbytes,
        stream,
    ):
        options, left, right, out = (self.things[x] for x in (description, first, second, d_layout))
        assert c == d
        assert c_layout == d_layout
        assert left["kind"] == right["kind"] == out["kind"]
        alignment = ctypes.c_uint64.from_address(algorithm).value
        count, kind = out.get(5, 1), out["kind"]
        wide = ctypes.c_double if kind == 1 else ctypes.c_float
        alpha, beta = (wide.from_address(x).value for x in (alpha, beta))
        for i in range(count):
            places = [at + i * x.get(6, 0) * _SIZE[kind] for at, x in ((a, left), (b, right), (c, out))]
            assert not any(place % alignment for place in places), "less aligned than was said"
            x, y, z = (
                _columns(at, kind, l["rows"], l["columns"], l["line"])
                for at, l in zip(places, (left, right, out), strict=True)
            )
            with np.errstate(over="ignore", invalid="ignore"):
                x, y = _read(x, kind), _read(y, kind)
                value = alpha * ((x.T if options.get(3) else x) @ (y.T if options.get(4) else y)) + (
                    beta * _read(z, kind) if beta else 0
                )
                if options.get(7) in (BIAS, RELU_BIAS):
                    value = value + _read(_columns(options[8], kind, out["rows"], 1, out["rows"]), kind)
                if options.get(7) == RELU_BIAS:
                    value = np.maximum(value, 0)
                z[...] = float32_to_bfloat16(value.astype(np.float32)) if kind == 14 else value.astype(z.dtype)
        self.made.append((out["columns"], out["rows"], x.shape[0] if options.get(3) else x.shape[1], count))
        self.tf32.append(options["compute"] == 77)


_SIZE = {0: 4, 1: 8, 2: 2, 14: 2}
_TYPE = {0: np.float32, 1: np.float64, 2: np.float16, 14: np.uint16}


def _columns(address, kind, rows, columns, line):
    dtype = np.dtype(_TYPE[kind])
    elements = (columns - 1) * line + rows
    flat = np.frombuffer((ctypes.c_char * (elements * dtype.itemsize)).from_address(address), dtype)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (dtype.itemsize, line * dtype.itemsize))


def _read(array, kind):
    if kind == 14:
        return bfloat16_to_float32(np.ascontiguousarray(array))
    return array.astype(np.float32) if kind == 2 else array
