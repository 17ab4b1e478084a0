"""Which columns of a file make which inputs of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Sequence
from typing import Any

from app.cli.common import Failure
from app.cli.matching import Matching, width
from app.cli.tables import Table
from app.errors import shorten
from app.types import MetadataTensor


def match(
    table: Table, inputs: Sequence[MetadataTensor], optional: Container[str] = (), chosen: Sequence[str] = ()
) -> Matching:
    """The columns for each input: those of its name, name_0 and on, or for an only input as many as it takes.

    `chosen` are the columns to look at: by their names, or in their order where none is an input's. Failure where an
    input has none.
    """
    tensors = {each.name: each for each in inputs}
    if any(not each.shape for each in inputs):
        raise Failure("an input of the model has no rows (its shape is []), which files are made of")
    columns = table.columns
    if not columns and not table.total:
        return Matching({}, tensors, [])
    if "" in columns:
        return match_array(table, tensors)
    if table.doubt and not chosen:
        raise Failure(table.doubt)
    if strangers := [each for each in chosen if each not in columns]:
        raise Failure(f'--columns: no "{strangers[0]}"; the file has {listed(columns)}')
    looked_at = list(chosen) or columns
    found = {each.name: own_columns(each, looked_at, is_chosen=bool(chosen)) for each in inputs}
    if not chosen:
        check_surplus(found, tensors, columns)
    missing = [name for name, made in found.items() if not made]
    if by_name := bool(chosen) and any(found.values()):
        check_chosen(chosen, found)
    if missing and len(inputs) == 1:
        found = {missing[0]: all_columns(inputs[0], looked_at, table)}
    elif missing and not by_name and (chosen or not table.has_names) and len(looked_at) == len(inputs):
        found = {name: [column] for name, column in zip(tensors, looked_at, strict=True)}
    elif chosen and not by_name:
        raise Failure(
            f"--columns: none is the name of an input, and there are {len(chosen)} of them for {len(inputs)} inputs: "
            f"{listed(tensors)}"
        )
    elif needed := [name for name in missing if name not in optional]:
        raise Failure(
            f'no column for the input "{needed[0]}"; the file has {listed(looked_at)}{likely(needed[0], looked_at)}'
            f"{table.hint}"
        )
    for name, made in found.items():
        if len(made) == 1 and made[0] in table.shapes:
            check_shape(tensors[name], table.shapes[made[0]])
    used = {column for made in found.values() for column in made}
    extra = [each for each in columns if each not in used]
    notes = notes_of(found, missing if chosen or table.has_names else [], extra)
    return Matching({name: made for name, made in found.items() if made}, tensors, extra, notes=notes)


def notes_of(found: dict[str, list[str]], nameless: Sequence[str], extra: Sequence[str]) -> list[str]:
    """What may not be meant: columns for inputs that none is named as, and optional inputs that one is nearly."""
    placed = [(name, found[name]) for name in nameless if found[name]]
    notes = []
    if len(found) > 1 and placed:
        notes = ["inputs get columns by position: " + listed(f"{name} <- {made[0]}" for name, made in placed)]
    for name, made in placed if len(found) == 1 else ():
        what = f'column "{made[0]}"' if len(made) == 1 else f"columns {listed(made)}"
        notes = [f'input "{name}" gets the {what}']
    absent = [(name, likely(name, extra)) for name in found if not found[name]]
    return notes + [f'no column for the optional input "{name}"{hint}' for name, hint in absent if hint]


def check_chosen(chosen: Sequence[str], found: dict[str, list[str]]) -> None:
    """Raises Failure where some of the chosen columns go by name, and some are no input's."""
    used = {column for made in found.values() for column in made}
    strangers, missing = [each for each in chosen if each not in used], [name for name in found if not found[name]]
    if strangers:
        rest = f"; without a column: {listed(missing)}" if missing else ""
        raise Failure(
            f"--columns: {listed(strangers)}: not the name of an input, as others are; give names alone, or none"
            f"{rest}{likely(strangers[0], missing)}"
        )


def likely(name: str, columns: Sequence[str]) -> str:
    """The column that is called so but for the case of its letters."""
    alike = [each for each in columns if each.casefold() == name.casefold()]
    return f'; "{alike[0]}" differs in case' if alike else ""


def check_shape(tensor: MetadataTensor, shape: Sequence[int]) -> None:
    """Raises Failure where rows of this shape are none of the input."""
    wanted, number = tensor.shape[1:], width(tensor)
    fits = math.prod(shape) == number
    if number is None:
        fits = len(shape) == len(wanted) and all(size in (-1, own) for size, own in zip(wanted, shape, strict=True))
    if not fits:
        raise Failure(f'input "{tensor.name}" has rows of shape {list(wanted)}; the array has rows of {list(shape)}')


def match_array(table: Table, tensors: dict[str, MetadataTensor]) -> Matching:
    """An array without a name, or images, are the only input."""
    is_image = "file" in table.columns
    (name, tensor), *others = tensors.items()
    if others:
        raise Failure(f"one array is one input, and the model takes {listed(tensors)}; NPZ holds several by name")
    if is_image and (tensor.datatype != "BYTES" or width(tensor) != 1):
        raise Failure(f'input "{name}" is {tensor.datatype} {tensor.shape}, and takes no image files; NPY has arrays')
    if not is_image:
        check_shape(tensor, table.shapes[""])
    return Matching({name: [""]}, tensors, ["file"] if is_image else [], is_image)


def own_columns(tensor: MetadataTensor, columns: Sequence[str], is_chosen: bool) -> list[str]:
    """The columns that are called as the input is; Failure where they are some of those that it needs."""
    if tensor.name in columns:
        return [tensor.name]
    number = width(tensor)
    if number is None:
        own = re.compile(re.escape(tensor.name) + r"_(\d+)")
        number = 1 + max((int(made[1]) for each in columns if (made := own.fullmatch(each))), default=-1)
    spread = [f"{tensor.name}_{index}" for index in range(min(number, 2**16))]
    missing = [each for each in spread if each not in set(columns)]
    if missing and len(missing) < len(spread) and not is_chosen:
        raise Failure(f"{missing[0]} is missing; the file has {listed(columns)}{likely(missing[0], columns)}")
    return [] if missing else spread


def check_surplus(found: dict[str, list[str]], tensors: dict[str, MetadataTensor], columns: Sequence[str]) -> None:
    """Raises Failure where an input has columns by number, and there are more of them than it takes."""
    used = {column for made in found.values() for column in made}
    for name, made in found.items():
        own = re.compile(re.escape(name) + r"_\d+")
        surplus = [each for each in columns if each not in used and own.fullmatch(each)]
        if surplus and made and made != [name]:
            taken = f"{len(made)} columns" if len(made) > 1 else "one column"
            raise Failure(
                f'input "{name}" (shape {tensors[name].shape}) takes {taken}, and the file has {listed(made)} and '
                f"{listed(surplus)}; --columns A,B,... chooses"
            )


def all_columns(tensor: MetadataTensor, columns: Sequence[str], table: Table) -> list[str]:
    """The columns of an only input that goes by none of their names."""
    is_text = tensor.datatype == "BYTES"
    fitting = [each for each in columns if (each in table.numeric) != is_text]
    if tensor.shape[1:].count(-1) and len(tensor.shape) > 2:
        raise Failure(f'input "{tensor.name}" has shape {tensor.shape}: give NPY, or JSON lines with lists')
    wanted = width(tensor)
    for candidates in (list(columns), fitting):
        if candidates and wanted in (None, len(candidates)):
            return candidates
    kind = "" if is_text else " of numbers"
    raise Failure(
        f'input "{tensor.name}" takes {wanted} columns{kind}; the file has {len(fitting)}: {listed(columns)}; '
        f"--columns A,B,... chooses{table.hint}"
    )


def listed(names: Any) -> str:
    return shorten(", ".join(names) or "none", 300)
