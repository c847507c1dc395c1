"""Elementwise and update kernels: the loops around a row's value, in a C-like language.

Layout classes, from the fastest; dispatch picks one after it has collapsed the axes:
  vector   every array dense and aligned to four elements; a thread takes four at a time
  dense    every array dense in one order
  quads    up to four axes, the last of which is dense or repeated in each array and aligned to four elements, which a
           thread takes at a time: a bias on rows, on channels
  rows     two axes, any strides, no division: transposition, rows of odd lengths
  general  up to four axes, any strides; fewer than 2^32 elements (larger tensors are split)
Sizes and strides count elements; offsets ("at") are 64 bits wide. Loops stride over the grid, so any launch is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..dtypes import DType
from ..rows.dialect import Dialect
from ..rows.hoist import Hoisted, host_numbers
from ..rows.kinds import Lowered, argument_dtype, lower_row
from ..rows.prelude import SHORT, load, prelude, store
from ..rows.render import native, statements
from ..rows.row import Row

LAYOUTS = ("vector", "dense", "quads", "rows", "general")
FOURS = frozenset({"vector", "quads"})  # for devices that do better with four neighbours a thread
RANK = 4


@dataclass(frozen=True)
class Kernel:
    """One entry point: its name, the whole text, and what the host must pass after the arrays, each in its dtype."""

    name: str
    text: str
    hoisted: Hoisted
    dtypes: tuple[DType, ...]  # of the hoisted numbers

    def numbers(self, scalars: Mapping[str, float]) -> tuple[float, ...]:
        """The numbers to pass, evaluated in float64."""
        return host_numbers(self.hoisted, scalars)


def render_row(
    row: Row, dialect: Dialect, stored: Mapping[str, DType], layout: str, *, host: frozenset[str] = frozenset()
) -> Kernel:
    """The kernel of a row for these storage dtypes (by signature letter) and layout class.

    Arguments named in `host` are numbers, not arrays. Parameters of the entry point:
      vector, dense  count, out, out_at, then each array and its offset, then the hoisted numbers
      rows           rows, columns, out, out_at, out_row, out_column, likewise for each array, numbers
      general        count, one struct (size[4], stride[arrays][4], at[arrays], out first), out, arrays, numbers
      quads          likewise; count and the last size are of fours
    """
    lowered = lower_row(row, stored, native, host=host)
    out = stored[row.signature.outputs]
    letters = dict(zip(row.args, row.signature.inputs, strict=True))
    arrays = {name: stored[letters[name]] for name in lowered.read}
    tag = "_".join([row.name.replace(".", "_"), *(SHORT[stored[k].name] for k in sorted({*letters.values(), row.signature.outputs})),
                    *sorted(host)])  # fmt: skip
    computed = {name: argument_dtype(letters[name], d, lowered.number) for name, d in arrays.items()}
    function = _value_function(dialect, tag, lowered, arrays, computed, out)
    shell = {"vector": _vector, "dense": _dense, "quads": _quads, "rows": _rows, "general": _general}[layout]
    body = shell(dialect, tag, arrays, out, lowered)
    head = prelude(dialect, [lowered.number, *computed.values()], [*arrays.values(), out])
    return Kernel(f"{tag}_{layout}", head + function + body, lowered.hoisted, lowered.numbers)


def _value_function(
    dialect: Dialect, tag: str, lowered: Lowered, arrays: Mapping[str, DType], computed: Mapping[str, DType], out: DType
) -> str:
    """`{tag}_value(elements..., numbers...)`: from storage dtypes to the storage dtype of the result."""
    parameters = [f"{dialect.storage_of(d)} s_{name}" for name, d in arrays.items()] + numbers(dialect, lowered)
    lines = [_loaded(dialect, name, stored, computed[name], f"s_{name}") for name, stored in arrays.items()]
    names = {**{name: f"v_{name}" for name in arrays}, **{h: h for h, _ in lowered.hoisted}}
    value = lowered.results[0][1]
    more, (text,) = statements(dialect, [value], names)
    lines += [*more, f"return {store(dialect, value.dtype, out, text)};"]
    body = "".join(f"    {line}\n" for line in lines)
    head = f"{dialect.function} {dialect.storage_of(out)} {tag}_value({', '.join(parameters) or 'void'})"
    return f"#ifndef VSL_{tag}\n#define VSL_{tag}\n{head}\n{{\n{body}}}\n#endif\n"


def _loaded(dialect: Dialect, name: str, stored: DType, computed: DType, text: str) -> str:
    return f"const {dialect.type_of(computed)} v_{name} = {load(dialect, stored, computed, text)};"


def _entry(dialect: Dialect, name: str, parameters: list[str], lines: list[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"{dialect.kernel} {name}({', '.join(parameters)})\n{{\n{body}}}\n"


def _pointers(dialect: Dialect, arrays: Mapping[str, DType], out: DType) -> dict[str, str]:
    """Each array's parameter, out first."""
    types = {"out": f"{dialect.memory}{dialect.storage_of(out)}"}
    types |= {f"p_{name}": f"const {dialect.memory}{dialect.storage_of(d)}" for name, d in arrays.items()}
    return {name: f"{text} *{name}" for name, text in types.items()}


def numbers(dialect: Dialect, lowered: Lowered) -> list[str]:
    """Parameters of the hoisted numbers."""
    return [f"{dialect.type_of(d)} {name}" for (name, _), d in zip(lowered.hoisted, lowered.numbers, strict=True)]


def _call(tag: str, elements: list[str], lowered: Lowered) -> str:
    return f"{tag}_value({', '.join([*elements, *(h for h, _ in lowered.hoisted)])})"


def _dense(dialect: Dialect, tag: str, arrays: Mapping[str, DType], out: DType, lowered: Lowered) -> str:
    long = dialect.types["int64"]
    pointers = _pointers(dialect, arrays, out)
    parameters = [f"{long} count", *(part for name, text in pointers.items() for part in (text, f"{long} {name}_at"))]
    value = _call(tag, [f"{p}[{p}_at + i]" for p in list(pointers)[1:]], lowered)
    return _entry(dialect, f"{tag}_dense", parameters + numbers(dialect, lowered), [
        f"for ({long} i = {dialect.index['global_x']}; i < count; i += {dialect.index['threads_x']})",
        f"    out[out_at + i] = {value};",
    ])  # fmt: skip


def _vector(dialect: Dialect, tag: str, arrays: Mapping[str, DType], out: DType, lowered: Lowered) -> str:
    long, int_ = dialect.types["int64"], dialect.types["int32"]
    pointers = _pointers(dialect, arrays, out)
    stored, fours, vectors = _vectors(dialect, arrays, out)
    reads = [
        f"const four_{SHORT[stored[p].name]} f_{p} = *(const {vectors[p]})({p} + {p}_at + i);"
        for p in list(pointers)[1:]
    ]
    parameters = [f"{long} count", *(part for name, text in pointers.items() for part in (text, f"{long} {name}_at"))]
    return fours + _entry(dialect, f"{tag}_vector", parameters + numbers(dialect, lowered), [
        f"for ({long} i = 4 * {dialect.index['global_x']}; i < count; i += 4 * {dialect.index['threads_x']}) {{",
        "    if (i + 4 <= count) {",
        *(f"        {line}" for line in reads),
        f"        four_{SHORT[out.name]} r;",
        f"        for ({int_} k = 0; k < 4; ++k) r.at[k] = {_call(tag, [f'f_{p}.at[k]' for p in list(pointers)[1:]], lowered)};",
        f"        *({vectors['out']})(out + out_at + i) = r;",
        "    } else {",
        f"        for ({long} k = i; k < count; ++k) out[out_at + k] = {_call(tag, [f'{p}[{p}_at + k]' for p in list(pointers)[1:]], lowered)};",
        "    }",
        "}",
    ])  # fmt: skip


def _vectors(dialect: Dialect, arrays: Mapping[str, DType], out: DType) -> tuple[dict[str, DType], str, dict[str, str]]:
    """What each pointer's elements are stored as, the types of four of them, and the pointers to such."""
    stored = {"out": out, **{f"p_{name}": d for name, d in arrays.items()}}
    fours = "".join(sorted({four(dialect, d) for d in stored.values()}))
    return stored, fours, {name: f"{dialect.memory}four_{SHORT[d.name]} *" for name, d in stored.items()}


def four(dialect: Dialect, dtype: DType) -> str:
    """Four elements that move as one, at most 16 bytes a time."""
    name, bytes_ = SHORT[dtype.name], min(4 * dtype.itemsize, 16)
    return (f"#ifndef VSL_four_{name}\n#define VSL_four_{name}\n"
            f"typedef struct __attribute__((aligned({bytes_}))) {{ {dialect.storage_of(dtype)} at[4]; }} four_{name};\n#endif\n")  # fmt: skip


def _rows(dialect: Dialect, tag: str, arrays: Mapping[str, DType], out: DType, lowered: Lowered) -> str:
    long, index = dialect.types["int64"], dialect.index
    pointers = _pointers(dialect, arrays, out)
    parameters = [f"{long} rows", f"{long} columns"]
    for name, text in pointers.items():
        parameters += [text, *(f"{long} {name}_{part}" for part in ("at", "row", "column"))]
    place = {name: f"{name}[{name}_at + i * {name}_row + j * {name}_column]" for name in pointers}
    return _entry(dialect, f"{tag}_rows", parameters + numbers(dialect, lowered), [
        f"for ({long} i = {index['global_y']}; i < rows; i += {index['threads_y']})",
        f"    for ({long} j = {index['global_x']}; j < columns; j += {index['threads_x']})",
        f"        {place['out']} = {_call(tag, list(place.values())[1:], lowered)};",
    ])  # fmt: skip


def _general(dialect: Dialect, tag: str, arrays: Mapping[str, DType], out: DType, lowered: Lowered) -> str:
    places = {name: f"{name}[{at}]" for name, at in _places(_pointers(dialect, arrays, out)).items()}
    value = _call(tag, list(places.values())[1:], lowered)
    return _walk(dialect, f"{tag}_general", _pointers(dialect, arrays, out), lowered, [f"{places['out']} = {value};"])


def _quads(dialect: Dialect, tag: str, arrays: Mapping[str, DType], out: DType, lowered: Lowered) -> str:
    pointers, int_ = _pointers(dialect, arrays, out), dialect.types["int32"]
    stored, fours, vectors = _vectors(dialect, arrays, out)
    lines = [f"i{RANK - 1} *= 4;"]
    for k, (name, at) in enumerate(_places(pointers).items()):
        if name == "out":
            continue
        lines += [
            f"four_{SHORT[stored[name].name]} f_{name};",
            f"if (layout.stride[{k}][{RANK - 1}]) f_{name} = *(const {vectors[name]})({name} + {at});",
            f"else f_{name}.at[0] = f_{name}.at[1] = f_{name}.at[2] = f_{name}.at[3] = {name}[{at}];",
        ]
    value = _call(tag, [f"f_{name}.at[k]" for name in list(pointers)[1:]], lowered)
    lines += [
        f"four_{SHORT[out.name]} r;",
        f"for ({int_} k = 0; k < 4; ++k) r.at[k] = {value};",
        f"*({vectors['out']})(out + {_places(pointers)['out']}) = r;",
    ]
    return fours + _walk(dialect, f"{tag}_quads", pointers, lowered, lines)


def _places(pointers: Mapping[str, str]) -> dict[str, str]:
    """Where the element of the indices i0, i1, ... lies in each array."""
    return {
        name: f"layout.at[{k}] + {' + '.join(f'i{d} * layout.stride[{k}][{d}]' for d in range(RANK))}"
        for k, name in enumerate(pointers)
    }


def _walk(dialect: Dialect, name: str, pointers: Mapping[str, str], lowered: Lowered, lines: list[str]) -> str:
    """The entry point of strided arrays: `lines` for each of `count` elements of `layout.size`."""
    long, uint, count = dialect.types["int64"], dialect.types["uint32"], len(pointers)
    fields = f"{long} size[{RANK}]; {long} stride[{count}][{RANK}]; {long} at[{count}];"
    guard = f"VSL_strides_{count}"
    struct = f"#ifndef {guard}\n#define {guard}\ntypedef struct {{ {fields} }} strides_{count};\n#endif\n"
    decode = [f"{long} i0 = rest;"]
    for d in range(1, RANK):
        decode.insert(0, f"{long} i{d} = rest % ({uint})layout.size[{d}]; rest /= ({uint})layout.size[{d}];")
    parameters = [f"{uint} count", f"strides_{count} layout", *pointers.values(), *numbers(dialect, lowered)]
    return struct + _entry(dialect, name, parameters, [
        f"for ({long} i = {dialect.index['global_x']}; i < count; i += {dialect.index['threads_x']}) {{",
        f"    {uint} rest = ({uint})i;",
        *(f"    {line}" for line in (*decode, *lines)),
        "}",
    ])  # fmt: skip
