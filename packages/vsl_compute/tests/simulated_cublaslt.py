"""cuBLASLt's calls that the backend makes, done by NumPy on the memory of a simulated device (see simulated_cuda.py)."""

from __future__ import annotations

import ctypes

import numpy as np

from vsl_compute.backends.cuda.cublaslt import AUX, BGRADB, BIAS, DRELU_BGRAD, RELU_AUX_BIAS, RELU_BIAS, CublasLt
from vsl_compute.dtypes import bfloat16_to_float32, float32_to_bfloat16


class SimulatedCublasLt(CublasLt):
    """The library's calls on strided arrays of NumPy. `made` lists (m, n, k, products) of each; `tf32` says how each was computed.

    It names `named` algorithms for a product, and as many that cut no sum, whose numbers begin at 100. `taken` lists those
    of the products; those in `wrong` err in the result, or in what the epilogue adds up; one spends `seconds` by its number.
    """

    def __init__(self, backend):
        self.calls, self._backend, self.handle, self.workspace = self, backend, 5, 6
        self.made, self.tf32, self.things = [], [], {}
        self.epilogues, self.lacks = [], set()  # of each product; which ones there is no algorithm for
        self.version, self.named, self.taken, self.wrong, self.wrong_sums = 1, 1, [], set(), set()
        self.seconds, self.spent = {}, 0.0

    class cuBLASLtError(Exception):
        def __init__(self, words, status):
            super().__init__(words)
            self.status = status

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
        if self.things[description].get(7) in self.lacks:
            raise self.cuBLASLtError("CUBLAS_STATUS_NOT_SUPPORTED (15)", 15)
        self.alignment = self.things[preference][5]
        count = min(wanted, self.named)
        first = 0 if self.things[preference][3] else 100
        ctypes.c_int32.from_address(found).value = count
        for at in range(count):
            words = (ctypes.c_uint64 * 12).from_address(results + at * 96)
            words[0], words[1] = self.alignment, first + at

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
        alignment, number = (ctypes.c_uint64 * 2).from_address(algorithm)
        self.taken.append(number)
        self.spent += self.seconds.get(number, 0.0)
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
                value = self._ended(options, value, y, out, kind)
                if number in self.wrong:
                    value[-1, -1] *= 1.5
                if number in self.wrong_sums:
                    _columns(options[8], kind, 1, 1, 1)[...] = 7
                _store(z, value, kind)
        self.made.append((out["columns"], out["rows"], x.shape[0] if options.get(3) else x.shape[1], count))
        self.tf32.append(options["compute"] == 77)
        self.epilogues.append(options.get(7, 0))

    def _ended(self, options, value, second, out, kind):
        """What the epilogue makes of a product, by the documentation of cublasLtEpilogue_t and cublasLtMatmulDescAttributes_t."""
        epilogue, (rows, columns) = options.get(7, 0), value.shape
        vector = (lambda n: _columns(options[8], kind, n, 1, n)) if epilogue else None
        if epilogue in (BIAS, RELU_BIAS, RELU_AUX_BIAS):  # one for each row of the result, added to all its columns
            value = value + _read(vector(rows), kind)
        if epilogue in (RELU_BIAS, RELU_AUX_BIAS):
            value, positive = np.maximum(value, 0), value > 0
        if (
            epilogue & AUX
        ):  # a bit an element, columns `line` bits apart, a multiple of 128 that is no less than the rows
            line = options[12]
            assert line % 128 == 0
            assert line >= rows
            memory = (ctypes.c_uint8 * (line // 8 * columns)).from_address(options[11])
            bits = np.frombuffer(memory, np.uint8).reshape(columns, line // 8)
            if epilogue == RELU_AUX_BIAS:
                bits[:, : -(-rows // 8)] = np.packbits(positive, axis=0, bitorder="little").T
            else:
                kept = np.unpackbits(bits, axis=1, count=rows, bitorder="little").T
                value = np.where(kept, value, 0)
        if epilogue in (DRELU_BGRAD, BGRADB):
            assert second.shape[0 if not options.get(4) else 1] > 1, "one term is not served"
        if epilogue == DRELU_BGRAD:  # of the result, over its columns
            _store(vector(rows), value.sum(1, keepdims=True), kind)
        if epilogue == BGRADB:  # of the second operand, over the terms; it is served transposed
            assert options.get(4) == 1
            _store(vector(columns), second.sum(1, keepdims=True), kind)
        return value


_SIZE = {0: 4, 1: 8, 2: 2, 14: 2}
_TYPE = {0: np.float32, 1: np.float64, 2: np.float16, 14: np.uint16}


def _columns(address, kind, rows, columns, line):
    dtype = np.dtype(_TYPE[kind])
    elements = (columns - 1) * line + rows
    flat = np.frombuffer((ctypes.c_char * (elements * dtype.itemsize)).from_address(address), dtype)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (dtype.itemsize, line * dtype.itemsize))


def _store(place, value, kind):
    place[...] = float32_to_bfloat16(value.astype(np.float32)) if kind == 14 else value.astype(place.dtype)


def _read(array, kind):
    if kind == 14:
        return bfloat16_to_float32(np.ascontiguousarray(array))
    return array.astype(np.float32) if kind == 2 else array
