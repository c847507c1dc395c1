"""Matrix products in vector registers, for CPUs and for runtimes whose groups have one thread."""

from __future__ import annotations

from ..dtypes import BY_NAME
from .gemm_text import Text


class Register(Text):
    """The register variant."""

    def types(self) -> str:
        """Vectors are the language's own."""
        return ""

    def head(self, first: str, step: str) -> list[str]:
        """The loop over tiles and where the matrices of a tile begin."""
        tile, long = self.tile, self.long
        return [
            f"const {long} down = (p.m + {tile.rows - 1}) / {tile.rows}, across = (p.n + {tile.columns - 1}) / {tile.columns};",
            f"for ({long} t = {first}; t < p.batches * down * across; t += {step}) {{",
            f"    const {long} row0 = ((t / across) % down) * {tile.rows}, column0 = (t % across) * {tile.columns};",
            *(f"    {line}" for line in self.batch("t / (down * across)")),
        ]

    def lines(self) -> list[str]:
        """The kernel's body."""
        tile, index = self.tile, self.dialect.index
        lanes, parts = tile.columns // 2, range(2)
        number = BY_NAME[f"u{self.number.name}"] if self.number.kind == "i" else self.number  # unsigned ones wrap
        value = self.dialect.type_of(number)
        vector = f"{value}{lanes}"
        rows = [
            f"const {self.long} r{i} = a0 + ((row0 + {i} < p.m) ? row0 + {i} : p.m - 1) * p.a_row;"
            for i in range(tile.rows)
        ]
        columns = [
            f"const {self.long} c{j} = b0 + ((column0 + {j} < p.n) ? column0 + {j} : p.n - 1) * p.b_column;"
            for j in range(tile.columns)
        ]
        sums = [f"{vector} s{i}_{v} = 0;" for i in range(tile.rows) for v in parts]
        direct = [f"vload{lanes}(0, b + b0 + column0 + k * p.b_row + {v * lanes})" for v in parts]
        loads = [f"({value}){self.load(f'b[c{j} + k * p.b_row]')}" for j in range(tile.columns)]
        one_by_one = [f"({vector})({', '.join(loads[v * lanes : (v + 1) * lanes])})" for v in parts]
        plain = self.dialect.storage_of(self.dtype) == value
        body = [*columns, *self._terms(vector, value, one_by_one)]
        if plain:
            body = [
                f"if ((p.b_column == 1) && (column0 + {tile.columns} <= p.n)) {{",
                *(f"    {line}" for line in self._terms(vector, value, direct)),
                "} else {",
                *(f"    {line}" for line in body),
                "}",
            ]
        held = [
            f"vstore{lanes}(s{i}_{v}, 0, sum + {i * tile.columns + v * lanes});"
            for i in range(tile.rows)
            for v in parts
        ]
        element = f"({self.value})sum[i * {tile.columns} + j]"
        contracted = self.fused and number.is_floating
        return [
            *(
                ["#pragma OPENCL FP_CONTRACT ON"] if contracted else []
            ),  # PoCL's fma is a call, its a * b + c an instruction
            *self.head(index["global_x"], index["threads_x"]),
            *(f"    {line}" for line in (*rows, *sums, *body)),
            f"    {value} sum[{tile.rows * tile.columns}];",
            *(f"    {line}" for line in held),
            f"    for ({self.int} i = 0; i < {tile.rows}; ++i) for ({self.int} j = 0; j < {tile.columns}; ++j) {{",
            *(f"        {line}" for line in self.stored("row0 + i", "column0 + j", element)),
            "    }",
            "}",
        ]

    def _terms(self, vector: str, value: str, columns: list[str]) -> list[str]:
        """The loop over k; `columns` are b's elements, a vector each."""
        lines = [f"const {vector} w{v} = {text};" for v, text in enumerate(columns)]
        for i in range(self.tile.rows):
            element = self.load(f"a[r{i} + k * p.a_column]")
            lines.append(f"const {vector} u{i} = ({vector})(({value}){element});")
            lines += [f"s{i}_{v} = s{i}_{v} + u{i} * w{v};" for v in range(len(columns))]
        return [f"for ({self.long} k = 0; k < p.k; ++k) {{", *(f"    {line}" for line in lines), "}"]
