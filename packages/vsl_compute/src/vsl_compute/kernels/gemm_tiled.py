"""Matrix products by tiles in shared memory, for GPUs."""

from __future__ import annotations

from ..dtypes import DType
from ..rows.dialect import Dialect
from ..rows.prelude import SHORT, store
from .gemm_text import Access, Text, Tile, pack_of


class Tiled(Text):
    """The tile variant.

    Shared memory has two tiles of each operand, a pack beyond each row of k: a transposing store of a warp then finds
    all its banks free. A thread's rows and columns are packs, `high` and `across` threads apart. Rows and columns
    outside are read from the last one inside, since nothing of them is stored; terms outside k are zeros.
    """

    def __init__(self, dialect: Dialect, dtype: DType, out: DType, tile: Tile, fused: bool, access: Access) -> None:
        super().__init__(dialect, dtype, out, tile, fused)
        self.access = access
        self.pack = pack_of(self.number.itemsize)
        self.vector = f"pack{self.pack}_{self.short}"
        self.elements, self.results = (f"pack{self.pack}_{SHORT[d.name]}" for d in (dtype, out))

    def types(self) -> str:
        """Numbers, and elements, that move as one."""
        held = {
            self.vector: (self.value, 16),
            self.elements: (self.dialect.storage_of(self.dtype), self.pack * self.dtype.itemsize),
            self.results: (self.dialect.storage_of(self.out), self.pack * self.out.itemsize),
        }
        return "".join(
            f"#ifndef VSL_{name}\n#define VSL_{name}\ntypedef struct __attribute__((aligned({size}))) "
            f"{{ {element} at[{self.pack}]; }} {name};\n#endif\n"
            for name, (element, size) in held.items()
        )

    def lines(self) -> list[str]:
        """The kernel's body."""
        tile, int_, long, uint = self.tile, self.int, self.long, self.uint
        wide, high = tile.columns // tile.thread_columns, tile.rows // tile.thread_rows
        lanes = min(tile.lanes, wide)
        stride_a, stride_b = ((n + self.pack) // self.pack for n in (tile.rows, tile.columns))
        shared = self.dialect.shared
        return [
            f"{shared}{self.vector} sa[{2 * tile.depth * stride_a}];",
            f"{shared}{self.vector} sb[{2 * tile.depth * stride_b}];",
            f"const {uint} down = ({uint})((p.m + {tile.rows - 1}) / {tile.rows}), across = ({uint})((p.n + {tile.columns - 1}) / {tile.columns});",
            f"const {uint} group = {self.dialect.index['group']}, number = group % (down * across);",
            f"const {uint} band = number / ({tile.band} * across) * {tile.band}, in_band = number - band * across;",
            f"const {uint} tall = (down - band < {tile.band}) ? down - band : {tile.band};",
            f"const {long} row0 = ({long})(band + in_band % tall) * {tile.rows}, column0 = ({long})(in_band / tall) * {tile.columns};",
            *self.batch("group / (down * across) / p.parts"),
            f"const {long} part = group / (down * across) % p.parts, begin = part * p.k;",
            f"const {long} terms = (p.terms - begin < p.k) ? p.terms - begin : p.k;",
            "a0 += begin * p.a_column; b0 += begin * p.b_row; out0 += part * p.out_part;",
            # threads that run together lie in a block of the tile, so that they read the same packs
            f"const {uint} thread = {self.dialect.index['local']};",
            f"const {uint} strip = thread / {high * lanes}, x0 = strip * {lanes} + thread % {lanes}, y0 = thread % {high * lanes} / {lanes};",
            *self._places("a", tile.rows, "p.m - row0", "row0", "p.a_row", "p.a_column"),
            *self._places("b", tile.columns, "p.n - column0", "column0", "p.b_column", "p.b_row"),
            f"{self.value} sum[{tile.thread_rows}][{tile.thread_columns}];",
            "#pragma unroll",
            f"for ({int_} i = 0; i < {tile.thread_rows}; ++i) {{",
            "#pragma unroll",
            f"    for ({int_} j = 0; j < {tile.thread_columns}; ++j) sum[i][j] = 0;",
            "}",
            f"{int_} now = 0;",
            f"for ({long} k0 = {-tile.depth}; k0 < terms; k0 += {tile.depth}) {{",
            f"    const {long} left = terms - k0 - {tile.depth};",
            f"    const {int_} next = {tile.depth} - now;",
            "    if (left > 0) {",
            f"        if (left >= {tile.depth}) {{",
            *(f"            {line}" for line in self._fetched(checked=False)),
            "        } else {",
            *(f"            {line}" for line in self._fetched(checked=True)),
            "        }",
            f"        a += {tile.depth} * p.a_column; b += {tile.depth} * p.b_row;",
            "    }",
            "    if (k0 >= 0) {",
            "#pragma unroll",
            f"        for ({int_} q = 0; q < {tile.depth}; ++q) {{",
            *(f"            {line}" for line in self._multiplied(high, wide, stride_a, stride_b)),
            "        }",
            "    }",
            "    if (left > 0) {",
            *(f"        {line}" for line in self._kept("a", tile.rows, stride_a)),
            *(f"        {line}" for line in self._kept("b", tile.columns, stride_b)),
            "    }",
            f"    {self.dialect.barrier}",
            "    now = next;",
            "}",
            *self._written(high, wide),
        ]

    def _loads(self, width: int, packed: bool) -> int:
        """How often each thread reads one tile of an operand."""
        count, rest = divmod(width * self.tile.depth, self.tile.threads * (self.pack if packed else 1))
        if rest or not count:
            raise ValueError(
                f"{self.tile}: its threads cannot share the reading of {width} by {self.tile.depth} elements"
            )
        return count

    def _spots(self, name: str, width: int) -> list[tuple[str, str]]:
        """Row and term of each read of a thread."""
        along, packed = getattr(self.access, name), getattr(self.access, f"{name}_packed")
        depth, size, spots = self.tile.depth, self.pack if packed else 1, []
        for j in range(self._loads(width, packed)):
            at = f"(thread + {j * self.tile.threads})"
            if along == "wide":
                packs = width // size
                spots.append((f"{at} % {packs} * {size}", f"{at} / {packs}"))
            elif not packed:
                spots.append((f"{at} / {depth}", f"{at} % {depth}"))
            else:  # two packs of a row by neighbours: 32 bytes, and a warp's stores fall on different banks
                pair = min(2, depth // size)
                spots.append(
                    (f"{at} / {pair} % {width}", f"({at} % {pair} + {pair} * ({at} / {pair * width})) * {size}")
                )
        return spots

    def _places(self, name: str, width: int, left: str, first: str, along: str, deep: str) -> list[str]:
        """Lines that declare where each read of a thread begins, and what holds it until it is stored."""
        axis, packed = getattr(self.access, name), getattr(self.access, f"{name}_packed")
        size = self.pack if packed else 1
        step_along, step_deep = ("" if axis == "wide" else f" * {along}"), ("" if axis == "deep" else f" * {deep}")
        number = self.long if axis == "any" else self.int  # how far apart elements of a tile may lie
        lines = [
            f"{name} += {name}0 + {first}{step_along};",
            f"const {self.int} last_{name} = ({self.int})(({left} < {width}) ? {left} : {width}) - {size if axis == 'wide' else 1};",
        ]
        row_step, term_step = (step.replace("p.", f"({number})p.") for step in (step_along, step_deep))
        for j, (row, term) in enumerate(self._spots(name, width)):
            inside = f"((row_{name}{j} < last_{name}) ? row_{name}{j} : last_{name})"
            lines += [
                f"const {self.int} row_{name}{j} = {row}, term_{name}{j} = {term};",
                f"const {number} at_{name}{j} = {inside}{row_step} + term_{name}{j}{term_step};",
                f"{self.elements if packed else self.dialect.storage_of(self.dtype)} next_{name}{j};",
            ]
        return lines

    def _fetched(self, *, checked: bool) -> list[str]:
        """Lines that begin to read the next tiles; `checked` where k ends within them."""
        lines = []
        for name, width in (("a", self.tile.rows), ("b", self.tile.columns)):
            packed = getattr(self.access, f"{name}_packed")
            for j in range(self._loads(width, packed)):
                target, source = f"next_{name}{j}", f"{name}[at_{name}{j}]"
                if packed:
                    source = f"*(const {self.dialect.memory}{self.elements} *)({name} + at_{name}{j})"
                zero = " ".join(f"{target}.at[{e}] = 0;" for e in range(self.pack)) if packed else f"{target} = 0;"
                lines.append(
                    f"if (term_{name}{j} < left) {target} = {source}; else {{ {zero} }}"
                    if checked
                    else f"{target} = {source};"
                )
        return lines

    def _kept(self, name: str, width: int, stride: int) -> list[str]:
        """Lines that store what was read into the next tile in shared memory."""
        axis, packed = getattr(self.access, name), getattr(self.access, f"{name}_packed")
        numbers = f"(({self.dialect.shared_pointer}{self.value} *)s{name})"
        lines = []
        for j in range(self._loads(width, packed)):
            row, term, held = f"row_{name}{j}", f"term_{name}{j}", f"next_{name}{j}"
            if packed and axis == "wide":
                moved = " ".join(f"v.at[{e}] = {self.load(f'{held}.at[{e}]')};" for e in range(self.pack))
                lines.append(
                    f"{{ {self.vector} v; {moved} s{name}[(next + term_{name}{j}) * {stride} + {row} / {self.pack}] = v; }}"
                )
            else:
                parts = [f"{held}.at[{e}]" for e in range(self.pack)] if packed else [held]
                lines += [
                    f"{numbers}[(next + {term} + {e}) * {stride * self.pack} + {row}] = {self.load(part)};"
                    for e, part in enumerate(parts)
                ]
        return lines

    def _multiplied(self, high: int, wide: int, stride_a: int, stride_b: int) -> list[str]:
        """Lines that add one term to each of a thread's sums."""
        tile, pack, lines = self.tile, self.pack, []
        for i in range(tile.thread_rows // pack):
            lines.append(f"const {self.vector} fa{i} = sa[(now + q) * {stride_a} + {i * high} + y0];")
        for j in range(tile.thread_columns // pack):
            lines.append(f"const {self.vector} fb{j} = sb[(now + q) * {stride_b} + {j * wide} + x0];")
        for i in range(tile.thread_rows):
            for j in range(tile.thread_columns):
                a, b = f"fa{i // pack}.at[{i % pack}]", f"fb{j // pack}.at[{j % pack}]"
                lines.append(f"sum[{i}][{j}] = {self.added(f'sum[{i}][{j}]', a, b)};")
        return lines

    def _written(self, high: int, wide: int) -> list[str]:
        """Lines that write a thread's part of the result."""
        tile, pack, int_ = self.tile, self.pack, self.int
        row = f"row0 + i / {pack} * {high * pack} + y0 * {pack} + i % {pack}"
        column = f"column0 + j / {pack} * {wide * pack} + x0 * {pack} + j % {pack}"
        rows = f"for ({int_} i = 0; i < {tile.thread_rows}; ++i)"
        if not self.access.out_packed:
            return [
                "#pragma unroll",
                rows + " {",
                "#pragma unroll",
                f"    for ({int_} j = 0; j < {tile.thread_columns}; ++j) {{",
                f"        const {self.long} row = {row}, column = {column};",
                *(f"        {line}" for line in self.stored("row", "column", "sum[i][j]")),
                "    }",
                "}",
            ]
        elements = f"{self.dialect.memory}{self.results} *"
        return [
            "#pragma unroll",
            rows + " {",
            "#pragma unroll",
            f"    for ({int_} j = 0; j < {tile.thread_columns}; j += {pack}) {{",
            f"        const {self.long} row = {row}, column = {column};",
            "        if ((row < p.m) && (column < p.n)) {",
            f"            {self.results} held;",
            f"            const {self.long} at = out0 + row * p.out_row + column;",
            f"            if (beta != 0) held = *(const {elements})(out + at);",
            "#pragma unroll",
            f"            for ({int_} e = 0; e < {pack}; ++e) {{",
            *(f"                {line}" for line in self.result("sum[i][j + e]", self.old("held.at[e]"))),
            f"                held.at[e] = {store(self.dialect, self.number, self.out, 'y')};",
            "            }",
            f"            *({elements})(out + at) = held;",
            "        }",
            "    }",
            "}",
        ]
