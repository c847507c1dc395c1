"""The texts of batch normalization's passes (kernels/batch_norm.py), for C-like languages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..dtypes import DType, uint64
from ..rows.dialect import Dialect
from ..rows.kinds import compute_dtype
from ..rows.prelude import SHORT, load, prelude, store
from .batch_norm import LEFT, NUMBERS, OUTPUTS, Pass, Share, arrays_of, join_arrays
from .shell import Kernel

JOINED = 4  # parts whose loads are under way together


def render_pass(what: Pass, dialect: Dialect, share: Share) -> Kernel:
    """The kernel of a pass. Parameters: NUMBERS; eps and one over the elements of a channel; `arrays_of`, each with an offset.

    Launched in ceil(channels / share.channels) * parts groups; a part has `share` positions.
    """
    return _Text(what.name, dialect, what.x, share).kernel(what)


def render_join(name: str, dialect: Dialect, number: DType, share: Share) -> Kernel:
    """The kernel that joins the parts of "moments" or "sums"; parameters as for `render_pass`, one group for its channels."""
    text = _Text(name, dialect, number, share)
    arrays = join_arrays(name, number)
    rstd = text.channel({"variance"}, Pass(name, number)) if name == "sums" else []
    return text.entry(f"join_{text.tag}", arrays, [*text.places(), *rstd, *text.joining(), *text.written()])


class _Text:
    def __init__(self, name: str, dialect: Dialect, x: DType, share: Share) -> None:
        self.name, self.dialect, self.x, self.share = name, dialect, x, share
        self.number = compute_dtype(x)
        self.t, self.uint, self.long = (dialect.types[n] for n in (self.number.name, "uint32", "int64"))
        self.each = f"for ({dialect.types['int32']} c = 0; c < {share.kept}; ++c)"
        self.lanes = f"for ({dialect.types['int32']} c = 0; c < {share.width}; ++c)"
        self.c = "0" if share.planes else "c"  # which of the thread's channels component c belongs to
        self.state = f"batch_{name}_{SHORT[self.number.name]}"
        self.vector = f"batch_{share.width}_{SHORT[x.name]}"
        kind = "planes" if share.planes else "columns"
        self.tag = f"{name}_{SHORT[x.name]}_{kind}_{share.width}_{share.across}_{share.group}"

    def literal(self, value: float) -> str:
        return self.dialect.literal(value, self.number)

    def entry(self, name: str, arrays: Mapping[str, tuple[DType, bool]], lines: Sequence[str]) -> Kernel:
        d = self.dialect
        given = [*(f"{self.uint} {n}" for n in NUMBERS), f"{self.t} eps", f"{self.t} per"]
        for n, (dtype, written) in arrays.items():
            given += [f"{'' if written else 'const '}{d.memory}{d.storage_of(dtype)} *{n}", f"{self.long} {n}_at"]
        name = f"batch_norm_{name}"
        head = prelude(d, [self.number], [dtype for dtype, _ in arrays.values() if dtype is not uint64])
        body = "".join(f"    {line}\n" for line in (*(f"{n} += {n}_at;" for n in arrays), *lines))
        text = f"{d.kernel} {d.group_of.format(threads=self.share.group)}{name}({', '.join(given)})\n{{\n{body}}}\n"
        return Kernel(name, head + self.vector_type() + self.state_type() + text, (), ())

    def vector_type(self) -> str:
        width, item = self.share.width, self.x.itemsize
        bytes_ = min(4 * item, 16) if width % 4 == 0 else item
        return (f"#ifndef VSL_{self.vector}\n#define VSL_{self.vector}\ntypedef struct __attribute__((aligned({bytes_}))) "
                f"{{ {self.dialect.storage_of(self.x)} at[{width}]; }} {self.vector};\n#endif\n")  # fmt: skip

    def state_type(self) -> str:
        """A state, and how two of them are joined: moments by Chan, Golub & LeVeque 1983."""
        if self.name not in LEFT:
            return ""
        if self.name == "moments":
            zero, fields = self.literal(0.0), "n m s"
            lines = [
                f"const {self.t} n = left.n + right.n, part = (n == 0) ? {zero} : right.n / n, d = right.m - left.m;",
                "r.n = n; r.m = left.m + d * part; r.s = left.s + right.s + d * (left.n * part) * d;",
            ]
        else:
            fields, lines = "a b", ["r.a = left.a + right.a; r.b = left.b + right.b;"]
        s, declared = self.state, " ".join(f"{self.t} {f};" for f in fields.split())
        body = "".join(f"    {line}\n" for line in (f"{s} r;", *lines, "return r;"))
        text = f"typedef struct {{ {declared} }} {s};\n{self.dialect.function} {s} {s}_joined({s} left, {s} right)\n{{\n{body}}}\n"
        return f"#ifndef VSL_{s}\n#define VSL_{s}\n{text}#endif\n"

    def kernel(self, what: Pass) -> Kernel:
        arrays, lines = arrays_of(what, self.dialect), self.places()
        if self.name == "moments":
            lines += [*self.fresh(), *self.loop(what, "x", "", self.moments)]
        elif self.name == "sums":
            read = {
                "mean",
                *(arrays.keys() & {"weight", "bias"}),
                *({"variance"} if what.relu or "dweight" in arrays else ()),
            }
            lines += [*self.channel(read, what), *self.fresh()]
            loads, stores = ("g x y", "d") if what.masked else ("g x", "")
            lines += self.loop(what, loads, stores, lambda n: self.sums(what, n))
        elif self.name == "normalize":
            lines += self.channel({"mean", "variance", *(arrays.keys() & {"weight", "bias"})}, what)
            loads = "x residual" if what.residual else "x"
            lines += self.loop(what, loads, "y", lambda n: self.normalized(what, n))
        else:
            lines += self.channel({*arrays} - {"g", "x", "dx"}, what)
            lines += self.loop(what, "g x", "dx", lambda n: self.back(what, n))
        if self.name in LEFT:
            lines += self.ended(what)
        options = [SHORT[d.name] if d else "no" for d in (what.weight, what.bias)]
        options += [n for n in ("relu", "residual", "parts") if getattr(what, n)]
        return self.entry("_".join([self.tag, *options]), arrays, lines)

    # where a thread stands
    def places(self) -> list[str]:
        s, index = self.share, self.dialect.index
        return [
            f"const {self.uint} me = {index['local']}, tx = me % {s.across}, ty = me / {s.across};",
            f"const {self.uint} blocks = (channels + {s.channels - 1}) / {s.channels};",
            f"const {self.uint} block = {index['group']} % blocks, part = {index['group']} / blocks;",
            f"const {self.uint} chan = {'block + tx' if s.planes else f'(block * {s.across} + tx) * {s.width}'};",
            f"const {self.uint} begin = part * share, last = (count - begin < share) ? count : begin + share;",
            f"const {self.uint} end = (chan < channels) ? last : begin;",
        ]

    def at(self, k: str) -> str:
        """Where position k of the thread's channels lies."""
        if not self.share.planes:
            return f"({self.long})({k}) * channels + chan"
        width = self.share.width
        return f"(({self.long})(({k}) / inner) * channels + chan) * ({self.long})(inner * {width}) + (({k}) % inner) * {width}"

    def channel(self, read: set[str], what: Pass) -> list[str]:
        """Numbers of the thread's channels, each an array that begins with c_."""
        d, one = self.dialect, self.literal(1.0)
        kinds = {"weight": what.weight, "bias": what.bias}
        names = [n for n in ("mean", "variance", "weight", "bias", "dweight", "dbias") if n in read]
        lines = [f"const {self.uint} j = (chan < channels) ? chan + c : c;"]
        for n in names:
            lines.append(f"c_{n}[c] = {load(d, kinds.get(n) or self.number, self.number, f'{n}[j]')};")
        made = []
        if "variance" in read:
            made = ["rstd"]
            lines.append(f"c_rstd[c] = {one} / {d.function_of('sqrt', self.number)}(c_variance[c] + eps);")
        if "dbias" in read:
            made += ["scale", "b", "a"]
            lines += [
                f"c_scale[c] = c_rstd[c]{' * c_weight[c]' if what.weight else ''};",
                "c_b[c] = -c_dweight[c] * per * c_scale[c]; c_a[c] = -c_dbias[c] * per * c_scale[c];",
            ]
        declared = ", ".join(f"c_{n}[{self.share.kept}]" for n in (*names, *made))
        return [f"{self.t} {declared};", f"{self.each} {{", *(f"    {line}" for line in lines), "}"]

    # the loop over positions
    def loop(self, what: Pass, loads: str, stores: str, body: Callable[[int], list[str]]) -> list[str]:
        """Over the thread's positions, several at a time and then one by one; `body` is lines for component c of so many."""
        d, rows, lines = self.dialect, self.share.rows, [f"{self.uint} k = begin + ty;"]
        for n, head in ((what.batch, f"for (; k + {(what.batch - 1) * rows} < end; k += {what.batch * rows}) {{"),
                        (1, f"for (; k < end; k += {rows}) {{")):  # fmt: skip
            inside = [f"const {self.long} at{r} = {self.at(f'k + {r * rows}')};" for r in range(n)]
            inside += [
                f"const {self.vector} {name}{r} = *(const {d.memory}{self.vector} *)({name} + at{r});"
                for r in range(n)
                for name in loads.split()
            ]
            inside += [f"{self.vector} to_{name}{r};" for r in range(n) for name in stores.split()]
            inside += [f"{self.lanes} {{", *(f"    {line}" for line in body(n)), "}"]
            inside += [
                f"*({d.memory}{self.vector} *)({name} + at{r}) = to_{name}{r};"
                for r in range(n)
                for name in stores.split()
            ]
            lines += [head, *(f"    {line}" for line in inside), "}"]
        return lines

    def value(self, name: str, r: int) -> str:
        return load(self.dialect, self.x, self.number, f"{name}{r}.at[c]")

    def moments(self, n: int) -> list[str]:
        t, lines = self.t, [f"const {self.t} m0_{r} = {self.value('x', r)};" for r in range(n)]
        level, count, half = 0, 1, n
        while half > 1:
            half //= 2
            for r in range(half):
                a, b = f"{level}_{2 * r}", f"{level}_{2 * r + 1}"
                name, factor = f"{level + 1}_{r}", self.literal(count / 2)
                spread = "" if level == 0 else f"s{a} + s{b} + "
                lines += [
                    f"const {t} d{name} = m{b} - m{a}, m{name} = m{a} + d{name} * {self.literal(0.5)};",
                    f"const {t} s{name} = {spread}d{name} * ({factor} * d{name});",
                ]
            level, count = level + 1, 2 * count
        spread = self.literal(0.0) if n == 1 else f"s{level}_0"
        return [*lines, f"{self.state} more; more.n = {self.literal(float(n))}; more.m = m{level}_0; more.s = {spread};",
                f"mine[c] = {self.state}_joined(mine[c], more);"]  # fmt: skip

    def before(self, what: Pass, r: int) -> str:
        """What the ReLU took in."""
        text = f"(v_x{r} - c_mean[{self.c}]) * c_rstd[{self.c}]"
        if what.weight is not None:
            text += f" * c_weight[{self.c}]"
        return text if what.bias is None else f"{text} + c_bias[{self.c}]"

    def arriving(self, what: Pass, r: int) -> list[str]:
        """The gradient that goes on, as d{r}; NaN counts as let pass."""
        t, zero = self.t, self.literal(0.0)
        lines = [f"const {t} v_x{r} = {self.value('x', r)}, v_g{r} = {self.value('g', r)};"]
        if what.masked:
            mask = f"{self.value('y', r)} <= 0"
            return [
                *lines,
                f"const {t} d{r} = ({mask}) ? {zero} : v_g{r};",
                f"to_d{r}.at[c] = ({mask}) ? 0 : g{r}.at[c];",
            ]
        return [*lines, f"const {t} d{r} = {f'({self.before(what, r)} <= 0) ? {zero} : ' if what.relu else ''}v_g{r};"]

    def sums(self, what: Pass, n: int) -> list[str]:
        lines = [line for r in range(n) for line in self.arriving(what, r)]
        first, second = [f"d{r}" for r in range(n)], [f"(v_x{r} - c_mean[{self.c}]) * d{r}" for r in range(n)]
        while len(first) > 1:
            first, second = (
                [f"({a} + {b})" for a, b in zip(terms[::2], terms[1::2], strict=True)] for terms in (first, second)
            )
        return [*lines, f"mine[c].a += {first[0]};", f"mine[c].b += {second[0]};"]

    def normalized(self, what: Pass, n: int) -> list[str]:
        lines = []
        for r in range(n):
            lines.append(f"const {self.t} v_x{r} = {self.value('x', r)};")
            text = self.before(what, r)
            if what.residual:
                text += f" + {self.value('residual', r)}"
            if what.relu:
                text = f"maximum_{SHORT[self.number.name]}({text}, {self.literal(0.0)})"
            lines.append(f"to_y{r}.at[c] = {store(self.dialect, self.number, self.x, f'({text})')};")
        return lines

    def back(self, what: Pass, n: int) -> list[str]:
        lines, c = [], self.c
        for r in range(n):
            value = f"(d{r} * c_scale[{c}] + ((v_x{r} - c_mean[{c}]) * c_rstd[{c}] * c_b[{c}] + c_a[{c}]))"
            lines += [*self.arriving(what, r), f"to_dx{r}.at[c] = {store(self.dialect, self.number, self.x, value)};"]
        return lines

    # states
    def fresh(self) -> list[str]:
        fields = ("n", "m", "s") if self.name == "moments" else ("a", "b")
        zeros = " ".join(f"mine[c].{f} = {self.literal(0.0)};" for f in fields)
        return [f"{self.state} mine[{self.share.width}];", f"{self.lanes} {{ {zeros} }}"]

    def tree(self) -> list[str]:
        """The states of threads with the same channels joined, in `held`; those with ty 0 have them in `mine`."""
        s, kept = self.share, self.share.kept
        if s.rows == 1:
            return []
        return [
            f"{self.each} held[me * {kept} + c] = mine[c];",
            f"for ({self.uint} reach = {s.rows // 2}; reach > 0; reach /= 2) {{",
            f"    {self.dialect.barrier}",
            f"    if (ty < reach) {self.each} {{",
            f"        const {self.uint} own = me * {kept} + c;",
            f"        held[own] = {self.state}_joined(held[own], held[own + reach * {s.across * kept}]);",
            "    }",
            "}",
            f"if (ty == 0) {self.each} mine[c] = held[me * {kept} + c];",
        ]

    def held(self) -> list[str]:
        return (
            [f"{self.dialect.shared}{self.state} held[{self.share.group * self.share.kept}];"]
            if self.share.rows > 1
            else []
        )

    def ended(self, what: Pass) -> list[str]:
        """What follows the loop: components joined, threads, and parts."""
        d, lines, width = self.dialect, self.held(), self.share.width
        if self.share.planes:
            step = 1
            while step < width:  # components in pairs; a width that is no power of two has some left over
                lines += [
                    f"mine[{i}] = {self.state}_joined(mine[{i}], mine[{i + step}]);"
                    for i in range(0, width - step, 2 * step)
                ]
                step *= 2
        lines += self.tree()
        if not what.parts:
            return [*lines, *self.written()]
        left = " ".join(f"left_{n}[({self.long})part * channels + chan + c] = mine[c].{n};" for n in LEFT[self.name])
        lines.append(f"if ((ty == 0) && (chan < channels)) {self.each} {{ {left} }}")
        if not d.counts:
            return lines
        long = d.types["uint64"]
        return [
            *lines, "__threadfence();", f"{d.shared}{self.uint} is_last;", d.barrier,
            f"if (me == 0) is_last = (atomicAdd(counters + block, ({long})1) + 1 == ({long})parts) ? 1 : 0;", d.barrier,
            "if (is_last) {", "    __threadfence();", "    if (me == 0) counters[block] = 0;",
            *(f"    {line}" for line in [*self.joining(again=True), *self.written()]), "}",
        ]  # fmt: skip

    def joining(self, *, again: bool = False) -> list[str]:
        """The parts' states, joined in their order; `again` where states and shared memory are there already."""
        s, batch = self.share, JOINED
        lines = self.fresh()[1:] if again else [*self.held(), *self.fresh()]
        lines += [f"const {self.uint} until = (chan < channels) ? parts : 0;", f"{self.uint} p = ty;"]
        for n, head in ((batch, f"for (; p + {(batch - 1) * s.rows} < until; p += {batch * s.rows}) {{"),
                        (1, f"for (; p < until; p += {s.rows}) {{")):  # fmt: skip
            lines += [head, f"    {self.each} {{"]
            for r in range(n):
                place = f"left_{{}}[({self.long})(p + {r * s.rows}) * channels + chan + c]"
                values = [(f, place.format(f)) for f in LEFT[self.name]]
                if self.name == "moments":
                    first = f"(p + {r * s.rows}) * share"
                    of = f"((count - {first} < share) ? count - {first} : share)"
                    values.insert(0, ("n", f"({self.t})({of}{f' * {s.width}' if s.planes else ''})"))
                lines.append(f"        {self.state} more{r}; {' '.join(f'more{r}.{f} = {v};' for f, v in values)}")
            lines += [f"        mine[c] = {self.state}_joined(mine[c], more{r});" for r in range(n)]
            lines += ["    }", "}"]
        return [*lines, *self.tree()]

    def written(self) -> list[str]:
        """The results, by the threads that have the states."""
        values = (
            ("mine[c].m", "mine[c].s / mine[c].n") if self.name == "moments" else ("mine[c].b * c_rstd[c]", "mine[c].a")
        )
        lines = " ".join(f"{n}[chan + c] = {v};" for n, v in zip(OUTPUTS[self.name], values, strict=True))
        return [f"if ((ty == 0) && (chan < channels)) {self.each} {{ {lines} }}"]
