"""Where the elements of several strided arrays lie: a struct that a kernel takes, and the lines that walk it.

Arrays of up to eight axes; sizes and strides count elements. Numbers below 2^32 are taken apart by 32-bit divisions;
a single axis needs none and may be longer.
"""

from __future__ import annotations

from ..rows.dialect import Dialect

RANK = 8


def struct(dialect: Dialect, count: int) -> str:
    """`places_{count}`: rank, size[8], stride[count][8], at[count], all int64."""
    long = dialect.types["int64"]
    fields = f"{long} rank; {long} size[{RANK}]; {long} stride[{count}][{RANK}]; {long} at[{count}];"
    return f"#ifndef VSL_places_{count}\n#define VSL_places_{count}\ntypedef struct {{ {fields} }} places_{count};\n#endif\n"


def walk(dialect: Dialect, count: int, number: str, layout: str = "layout", at: str = "at") -> list[str]:
    """Lines that declare {at}0, {at}1, ...: where element `number`, in C order, of each array lies."""
    long, uint, int_ = dialect.types["int64"], dialect.types["uint32"], dialect.types["int32"]
    lines = [f"{long} {at}{k} = {layout}.at[{k}];" for k in range(count)]
    moves = [f"{at}{k} += {at}_j * {layout}.stride[{k}]" for k in range(count)]
    return [
        *lines,
        f"{long} {at}_rest = {number};",
        f"for ({int_} d = ({int_}){layout}.rank - 1; d > 0; --d) {{",
        f"    const {uint} {at}_size = ({uint}){layout}.size[d];",
        f"    const {long} {at}_j = ({uint}){at}_rest % {at}_size;",
        f"    {at}_rest = ({uint}){at}_rest / {at}_size;",
        f"    {' '.join(f'{m}[d];' for m in moves)}",
        "}",
        f"{' '.join(f'{at}{k} += {at}_rest * {layout}.stride[{k}][0];' for k in range(count))}",
    ]


def entry(dialect: Dialect, name: str, parameters: list[str], lines: list[str], *, threads: int = 0) -> str:
    """A kernel of these lines; `threads` is the size of its groups where they must have one."""
    body = "".join(line + "\n" if line.startswith("#") else f"    {line}\n" for line in lines)
    groups = dialect.group_of.format(threads=threads) if threads else ""
    return f"{dialect.kernel} {groups}{name}({', '.join(parameters)})\n{{\n{body}}}\n"


def loop(dialect: Dialect, count: str, lines: list[str], number: str = "i") -> list[str]:
    """Lines for each number below `count`, spread over all threads of the launch."""
    index, long = dialect.index, dialect.types["int64"]
    head = f"for ({long} {number} = {index['global_x']}; {number} < {count}; {number} += {index['threads_x']}) {{"
    return [head, *(f"    {line}" for line in lines), "}"]
