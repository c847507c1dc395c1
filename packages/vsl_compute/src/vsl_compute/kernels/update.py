"""Update kernels: an optimizer step over many parameters in one launch, in place.

The arrays of one parameter are dense and ordered alike. On CUDA a launch covers all parameters: a table among its own
parameters, by value, holds for each the group that it begins with, its element count and its arrays' addresses. A group finds
its parameter by halving and takes one part of it, so a bias and a matrix share the launch. OpenCL passes no pointers in a
struct: there, one launch is one parameter.

A 0-d slot (a step count) is read by every thread, so none may write it before all of them have: the order of blocks is not
defined. On CUDA the groups of a parameter count, in memory that is 0 between launches, that they have read, and the last of
them stores the new count and clears the counter. Elsewhere the kernel computes the new count for itself and stores
only arrays with elements; a second entry point, `{name}_slots`, computes the count again and stores it. Queues run the two
in order, and Vulkan puts a barrier between them.

Arrays of two axes with strides of their own, as the gates of a recurrent step have, are a plane, without 0-d slots: one
launch everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ..dtypes import DType
from ..rows.dialect import Dialect
from ..rows.kinds import Lowered, lower_update, update_parts
from ..rows.prelude import SHORT, load, prelude, store
from ..rows.render import native, statements
from ..rows.row import Update
from ..view import Layout, Shape
from .shell import Kernel, four, numbers

CHUNK = 2048  # elements that a group of a table launch takes: 264 thousand parameters keep 132 units busy
TABLE_BYTES = 3840  # of a table: CUDA takes 4 KB of parameters, and the numbers are among them
LEAST_ROOM = 8  # parameters


@lru_cache(maxsize=1 << 12)
def apart(row: Update, layouts: tuple[Layout, ...]) -> tuple[Shape, tuple[int, ...]]:
    """Strides of a dense order for the arrays of one parameter, and which of them lie in another: those are to be copied.

    The order for which the fewest copies are made, where what is written is copied back too: a gradient with channels last
    is brought to the order of its weight and momenta, not they to its own.
    """
    flat = [k for k, name in enumerate(row.arrays) if name not in row.zero_d]
    shape = layouts[flat[0]].shape

    def others(strides: Shape) -> tuple[int, ...]:
        return tuple(
            k
            for k in flat
            if any(n != 1 and s != wanted for n, s, wanted in zip(shape, layouts[k].strides, strides, strict=True))
        )

    orders = {layouts[k].like(layouts[k].dtype).strides: None for k in flat}
    best = min(orders, key=lambda strides: sum(1 + (row.arrays[k] in row.written) for k in others(strides)))
    return best, others(best) if layouts[flat[0]].size else ()


def render_update(
    row: Update, dialect: Dialect, stored: Mapping[str, DType], *, room: int | None = None
) -> tuple[Kernel, ...]:
    """The kernels of an update for these storage dtypes (by letter): the step and, if there are 0-d slots, elsewhere theirs.

    Parameters:
      table  (CUDA)    table: a struct of `room` rows (first group, count, address...) of uint64; how many rows are used, int64;
                       counters, uint64, one a row, if there are slots to step; then the hoisted numbers
      call   (OpenCL)  count, then each array and its offset, then the numbers; the slots' kernel without the count
    """
    every, once = update_parts(row)
    by_array = {name: stored[letter] for name, letter in zip(row.arrays, row.letters, strict=True)}
    tag = "_".join([row.name, *(SHORT[stored[letter].name] for letter in sorted(set(row.letters)))])
    held = most_rows(row) if room is None else room
    kernels = [_kernel(row, dialect, by_array, every, tag, slots=False, room=held)]
    if once and not dialect.pointer_table:
        kernels.append(_kernel(row, dialect, by_array, once, f"{tag}_slots", slots=True))
    return tuple(kernels)


def render_plane(row: Update, dialect: Dialect, stored: Mapping[str, DType]) -> Kernel:
    """The kernel of an update without 0-d slots over a plane: rows, columns, then each array, its offset and two strides, numbers."""
    by_array = {name: stored[letter] for name, letter in zip(row.arrays, row.letters, strict=True)}
    lowered = lower_update(row, list(row.statements), by_array, native)
    long, index = dialect.types["int64"], dialect.index
    _, lines = _step(
        row, dialect, by_array, lowered, slots=False, element="p_{0}[at_{0} + i * row_{0} + j * column_{0}]"
    )
    parameters = [f"{long} rows", f"{long} columns"]
    for name, dtype in by_array.items():
        constant = "" if name in row.written else "const "
        parameters += [f"{constant}{dialect.memory}{dialect.storage_of(dtype)} *p_{name}"]
        parameters += [f"{long} {part}_{name}" for part in ("at", "row", "column")]
    name = "_".join([row.name, *(SHORT[stored[letter].name] for letter in sorted(set(row.letters))), "plane"])
    head = prelude(dialect, [lowered.number], by_array.values())
    body = [
        f"for ({long} i = {index['global_y']}; i < rows; i += {index['threads_y']})",
        f"    for ({long} j = {index['global_x']}; j < columns; j += {index['threads_x']}) {{",
        *(f"        {line}" for line in lines),
        "    }",
    ]
    text = "".join(f"    {line}\n" for line in body)
    entry = f"{dialect.kernel} {name}({', '.join([*parameters, *numbers(dialect, lowered)])})\n{{\n{text}}}\n"
    return Kernel(name, head + entry, lowered.hoisted, lowered.numbers)


def _kernel(
    row: Update,
    dialect: Dialect,
    arrays: Mapping[str, DType],
    texts: list[tuple[str, str]],
    name: str,
    *,
    slots: bool,
    room: int = 0,
) -> Kernel:
    lowered = lower_update(row, texts, arrays, native)
    head = prelude(dialect, [lowered.number], arrays.values())
    before, lines = _step(row, dialect, arrays, lowered, slots=slots)
    if dialect.pointer_table:
        _, stepped = _step(row, dialect, arrays, lowered, slots=True)
        struct, parameters, body = _table(row, dialect, arrays, before, lines, stepped, room)
        head += struct
    else:
        _, packed = _step(row, dialect, arrays, lowered, slots=slots, element="four_{}.at[e]")
        parameters, body = _call(row, dialect, arrays, before, lines, packed, slots=slots)
        head += "" if slots else "".join(sorted({four(dialect, d) for d in arrays.values()}))
    text = "".join(f"    {line}\n" for line in body)
    entry = f"{dialect.kernel} {name}({', '.join([*parameters, *numbers(dialect, lowered)])})\n{{\n{text}}}\n"
    return Kernel(name, head + entry, lowered.hoisted, lowered.numbers)


def _step(
    row: Update,
    dialect: Dialect,
    arrays: Mapping[str, DType],
    lowered: Lowered,
    *,
    slots: bool,
    element: str = "p_{}[i]",
) -> tuple[list[str], list[str]]:
    """Lines before the loop (the 0-d slots are read once) and in it: load, compute, store an element, or the slots."""
    number = dialect.type_of(lowered.number)
    place = {name: f"p_{name}[0]" if name in row.zero_d else element.format(name) for name in arrays}
    loads = {a: f"const {number} v_{a} = {load(dialect, arrays[a], lowered.number, place[a])};" for a in lowered.read}
    names = {**{a: f"v_{a}" for a in lowered.read}, **{h: h for h, _ in lowered.hoisted}}
    results = [(name, value) for name, value in lowered.results if (name in row.zero_d) == slots]
    more, texts = statements(dialect, [value for _, value in results], names)
    more += [f"const {number} r_{name} = {text};" for (name, _), text in zip(results, texts, strict=True)]
    more += [f"{place[name]} = {store(dialect, lowered.number, arrays[name], f'r_{name}')};" for name, _ in results]
    before = [line for a, line in loads.items() if a in row.zero_d]
    return before, ([] if slots else [line for a, line in loads.items() if a not in row.zero_d]) + more


def _table(
    row: Update,
    dialect: Dialect,
    arrays: Mapping[str, DType],
    before: list[str],
    lines: list[str],
    stepped: list[str],
    room: int,
) -> tuple[str, list[str], list[str]]:
    """The table's type, the kernel's parameters and its lines."""
    long, ulong, uint = dialect.types["int64"], dialect.types["uint64"], dialect.types["uint32"]
    kind = f"VSL_table_{room}_{table_width(row)}"
    fields = f"{ulong} at[{room}][{table_width(row)}];"
    struct = f"#ifndef {kind}_\n#define {kind}_\ntypedef struct {{ {fields} }} {kind};\n#endif\n"
    pointers = [
        f"{dialect.storage_of(arrays[name])} *p_{name} = ({dialect.storage_of(arrays[name])} *)table.at[k][{i}];"
        for i, name in enumerate(row.arrays, 2)
    ]
    last = [
        dialect.barrier,  # all of this group have read the slots
        f"if ({dialect.index['local']} == 0) {{",
        f"    const {ulong} groups = (count > {CHUNK}) ? (count + {CHUNK - 1}) / {CHUNK} : 1;",
        "    __threadfence();",
        f"    if (atomicAdd(counters + k, ({ulong})1) + 1 == groups) {{",
        "        __threadfence();",
        "        counters[k] = 0;",
        *(f"        {line}" for line in stepped),
        "    }",
        "}",
    ]
    parameters = [f"{kind} table", f"{long} rows", *([f"{ulong} *counters"] if stepped else [])]
    return (
        struct,
        parameters,
        [
            f"const {ulong} group = {dialect.index['group']};",
            f"{uint} k = 0;",  # the last row that begins at this group or before
            f"for ({uint} half = {1 << max(0, (room - 1).bit_length() - 1)}; half; half >>= 1)",
            "    if ((k + half < rows) && (table.at[k + half][0] <= group)) k += half;",
            f"const {long} count = ({long})table.at[k][1];",
            f"const {long} first = ({long})(group - table.at[k][0]) * {CHUNK};",
            f"const {long} end = (count < first + {CHUNK}) ? count : first + {CHUNK};",
            *pointers,
            *before,
            *(last if stepped else []),
            f"for ({long} i = first + {dialect.index['local']}; i < end; i += {dialect.index['group_size']}) {{",
            *(f"    {line}" for line in lines),
            "}",
        ],
    )


def table_width(row: Update) -> int:
    """Numbers of a parameter in the table: the group that it begins with, its count, and its addresses."""
    return len(row.arrays) + 2


def most_rows(row: Update) -> int:
    """Parameters that one launch takes."""
    return TABLE_BYTES // (8 * table_width(row))


def room_for(row: Update, rows: int) -> int:
    """Rows of the table that a launch of so many parameters takes: few sizes, so that few kernels are compiled."""
    return min(most_rows(row), max(LEAST_ROOM, 1 << (rows - 1).bit_length()))


def stepped_slots(row: Update) -> list[int]:
    """Which arrays are 0-d slots that the update writes."""
    return [k for k, name in enumerate(row.arrays) if name in row.zero_d and name in row.written]


def _call(
    row: Update,
    dialect: Dialect,
    arrays: Mapping[str, DType],
    before: list[str],
    lines: list[str],
    packed: list[str],
    *,
    slots: bool,
) -> tuple[list[str], list[str]]:
    """A thread takes four elements at a time, `packed` saying what becomes of number e of them."""
    long, int_ = dialect.types["int64"], dialect.types["int32"]
    used = [name for name in row.arrays if not slots or name in row.zero_d]
    parameters = [] if slots else [f"{long} count"]
    for name in used:
        constant = "" if name in row.written and (name in row.zero_d) == slots else "const "
        parameters += [f"{constant}{dialect.memory}{dialect.storage_of(arrays[name])} *p_{name}", f"{long} at_{name}"]
    shift = [f"p_{name} += at_{name};" for name in used]
    if slots:
        return parameters, [
            f"if ({dialect.index['global_x']} == 0) {{",
            *(f"    {line}" for line in (*shift, *before, *lines)),
            "}",
        ]
    flat = [name for name in used if name not in row.zero_d]
    quad = {name: f"four_{SHORT[arrays[name].name]}" for name in flat}
    reads = [f"{quad[n]} four_{n} = *(const {dialect.memory}{quad[n]} *)(p_{n} + first);" for n in flat]
    writes = [f"*({dialect.memory}{quad[n]} *)(p_{n} + first) = four_{n};" for n in flat if n in row.written]
    return parameters, [
        *shift,
        *before,
        f"const {long} at_all = {' | '.join(f'at_{name}' for name in flat)};",
        f"for ({long} first = 4 * {dialect.index['global_x']}; first < count; first += 4 * {dialect.index['threads_x']}) {{",
        "    if ((first + 4 <= count) && ((at_all & 3) == 0)) {",
        *(f"        {line}" for line in reads),
        f"        for ({int_} e = 0; e < 4; ++e) {{",
        *(f"            {line}" for line in packed),
        "        }",
        *(f"        {line}" for line in writes),
        "    } else {",
        f"        for ({long} i = first; (i < first + 4) && (i < count); ++i) {{",
        *(f"            {line}" for line in lines),
        "        }",
        "    }",
        "}",
    ]
