"""Includes shared files and named steps: both are inserted into the document before validation.

Every part keeps its position in the file where it was written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mappings.allowed_files import OutsideError, allowed_path
from mappings.positions import (
    START,
    Block,
    IncludedFile,
    MappingProblem,
    Node,
    Position,
    Scalar,
    YamlList,
    position_after,
    read_yaml,
    walk,
)
from mappings.reasons import did_you_mean

FRAGMENT_MARK = "_"
"""The prefix of files that are only included, and may be in the folder of feeds."""
_SHARED = ("let", "steps")
_USE = "use"
"""The key of a step that inserts named steps."""
_MOST_STEPS = 500
_NOT_VALUES = frozenset({"steps", "include", "source", "examples"})


def include_files(document: Block, folder: Path, others: Sequence[Path]) -> Iterator[MappingProblem]:
    """Insert the files under `include` into a document from `folder`; yield a problem for each part that cannot be inserted.

    `others`: folders in which files may lie, too.
    """
    for name in _included_names(document):
        try:
            path = allowed_path(name, folder, others)
            text = path.read_bytes().decode("utf-8-sig")
        except OutsideError as error:
            yield MappingProblem(name.position, f'the file "{name}" cannot be included: {error}', error.hint)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].decode("utf-8", "replace")
            position = position_after(before, IncludedFile(path, ""))
            yield MappingProblem(position, "the file is not UTF-8 from here on", "save it as UTF-8")
        except (OSError, ValueError) as error:
            near = did_you_mean(name, (str(other.relative_to(folder)) for other in folder.rglob("*.y*ml")))
            yield MappingProblem(name.position, f'the file "{name}" cannot be included: {error}', near)
        else:
            yield from _include(document, IncludedFile(path, text))


def _included_names(document: Block) -> list[Scalar]:
    named = document.get("include")
    return [name for name in (named if isinstance(named, YamlList) else [named]) if isinstance(name, Scalar)]


def _include(document: Block, file: IncludedFile) -> Iterator[MappingProblem]:
    shared, problems = read_yaml(file.text, file)
    yield from problems
    if not isinstance(shared, Block):
        if not problems:
            yield MappingProblem(Position(1, 1, file), "an included file is a block of keys: let, steps")
        return
    for key in shared:
        if key not in _SHARED:
            yield MappingProblem(shared.key_position(key), f'an included file may have let and steps, not "{key}"')
        elif not isinstance(shared[key], Block):
            yield MappingProblem(shared[key].position, "a block of keys is needed")
        elif isinstance(names := document.setdefault(key, Block(shared[key].position)), Block):
            yield from _add_names(names, shared[key])


def _add_names(names: Block, added: Block) -> Iterator[MappingProblem]:
    for name in added:
        if name in names:
            first = names.key_position(name)
            where = f"in {first.file.path.name}, line {first.line}" if first.file else f"in line {first.line}"
            yield MappingProblem(added.key_position(name), f'"{name}" is named twice', f"first {where}; give one another name")
        else:
            names[name] = added[name]


def is_shared(path: Path) -> bool:
    """Return whether a file is only included: it has no feed name, and it has `let` or `steps` only, or the prefix."""
    document = _document(path)
    return "feed" not in document and (path.name.startswith(FRAGMENT_MARK) or (bool(document) and document.keys() <= {*_SHARED}))


def including(shared: Path, feeds: Iterable[Path]) -> list[Path]:
    """Return the feed files that include the file `shared`."""
    names = {path: [name for name in _included_names(_document(path)) if "\0" not in name] for path in feeds}
    file = os.path.realpath(shared)
    return [path for path, included in names.items() if file in (os.path.realpath(path.parent / name) for name in included)]


def _document(path: Path) -> Block:
    """Return a file's own document, empty if it cannot be read."""
    try:
        document = read_yaml(path.read_bytes().decode("utf-8-sig"))[0]
    except (OSError, UnicodeDecodeError):
        return Block()
    return document if isinstance(document, Block) else Block()


def insert_named_steps(document: Block) -> list[MappingProblem]:
    """Replace each use of named steps by the steps, and return the problems."""
    steps = document.get("steps")
    named = steps if isinstance(steps, Block) else Block()
    problems: list[MappingProblem] = []
    for name in named:
        named[name] = _inserted(named[name], (name,), named, problems)
    for key in document:
        for _, node in [] if key in _NOT_VALUES else list(walk(document[key])):
            if isinstance(node, Block) and "do" in node:
                node["do"] = _inserted(node["do"], (), named, problems)
    return problems


def _inserted(steps: object, outer: tuple[str, ...], named: Block, problems: list[MappingProblem]) -> object:
    """Return steps with named ones inserted; `outer`: the names that are being inserted, to detect circles."""
    items = steps if isinstance(steps, YamlList) else [steps]
    if not any(isinstance(item, Block) and _USE in item for item in items):
        return steps
    position = steps.position if isinstance(steps, YamlList | Block) else START
    row = YamlList(position)
    for item in items:
        if not isinstance(item, Block) or _USE not in item:
            row.append(item)
        elif problem := _misuse(item, outer, named):
            problems += [problem] if problem not in problems else []
        else:
            name = str(item[_USE])
            named[name] = _inserted(named[name], (*outer, name), named, problems)
            row.extend(named[name] if isinstance(named[name], YamlList) else [named[name]])
    if len(row) > _MOST_STEPS:
        problems.append(MappingProblem(position, f"these are more than {_MOST_STEPS} steps"))
        del row[_MOST_STEPS:]
    return row


def _misuse(item: Block, outer: tuple[str, ...], named: Block) -> MappingProblem | None:
    """Return the problem of a use of named steps, None if it is correct."""
    name: Node = item[_USE]
    if len(item) > 1:
        other = next(key for key in item if key != _USE)
        message = f'"{_USE}" has no key "{other}"'
        return MappingProblem(item.key_position(other), message, "write it beside a step")
    if not isinstance(name, Scalar) or name not in named:
        hint = did_you_mean(str(name), named) or "name them under steps"
        return MappingProblem(name.position, f'there are no steps "{name}"', hint)
    if name in outer:
        shown = " -> ".join((*outer[outer.index(name) :], name))
        return MappingProblem(name.position, f"the named steps refer to each other in a circle: {shown}")
    return None
