"""Parses YAML to texts, lists and blocks that know their line and column.

Scalars have no types here: `no`, `02134` and `1.0` stay text; the models convert them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_MAX_NODES = 200_000
_MAX_DEPTH = 60
_ENDLESS = "the file nests too deeply or repeats an anchor without end"
_OPENERS = ("[", "{", "- ", "? ")


@dataclass(frozen=True, slots=True)
class IncludedFile:
    """An included file, with its text."""

    path: Path
    text: str


class Position(NamedTuple):
    """Line and column, both from 1; `file` is None in the feed's own file."""

    line: int
    column: int
    file: IncludedFile | None = None


START = Position(1, 1)


class Scalar(str):
    """A YAML scalar: always text. Keys are scalars, too."""

    __slots__ = ("position",)
    position: Position

    @classmethod
    def at(cls, position: Position, text: str) -> Scalar:
        """Return a text with its position."""
        scalar = cls(text)
        scalar.position = position
        return scalar


class Block(dict[str, Any]):
    """A YAML mapping. `allowed`: the keys that its model has."""

    __slots__ = ("allowed", "position")

    def __init__(self, position: Position = START) -> None:
        super().__init__()
        self.position = position
        self.allowed: tuple[str, ...] = ()

    def key_position(self, name: str) -> Position:
        """Return the position of a key, or of the block if it has no such key."""
        return next((key.position for key in self if key == name and isinstance(key, Scalar)), self.position)


class YamlList(list[Any]):
    """A YAML sequence."""

    __slots__ = ("position",)

    def __init__(self, position: Position, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.position = position


Node = Scalar | Block | YamlList
Loc = tuple[int | str, ...]
"""The path to a part of a document, as keys and indexes."""


@dataclass(frozen=True, slots=True)
class MappingProblem:
    """A mistake in a mapping file, at a position or at a path that is resolved to a position later."""

    where: Position | Loc
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ValuePosition:
    """The place of a value: its path in the file, its path in the payload, and whether it may be empty there."""

    loc: Loc
    path: str = ""
    may_be_empty: bool = False

    def inner(self, *loc: int | str, may_be_empty: bool | None = None) -> ValuePosition:
        """Return the place of a value inside this one."""
        return ValuePosition(self.loc + loc, self.path, self.may_be_empty if may_be_empty is None else may_be_empty)


def read_yaml(text: str, file: IncludedFile | None = None) -> tuple[Node | None, list[MappingProblem]]:
    """Parse YAML and return the document with all problems: None if it is not YAML, incomplete if there are problems."""
    try:
        deep = _too_deep(text)
        root = None if deep else yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            mark = error.problem_mark
            position = Position(mark.line + 1, mark.column + 1, file)
            what = f"{error.problem} ({error.context})" if error.context else error.problem
            what = "there is a tab here: indent with spaces" if text[mark.index : mark.index + 1] == "\t" else what
        elif isinstance(error, yaml.reader.ReaderError):
            position, what = position_after(text[: error.position], file), "there is a control character here"
        else:
            position, what = Position(1, 1, file), str(error)
        return None, [MappingProblem(position, f"this is not YAML: {what}")]
    if deep:
        return None, [MappingProblem(deep._replace(file=file), _ENDLESS)]
    if root is None:
        return None, [MappingProblem(Position(1, 1, file), "the file is empty")]
    reading = _Reading(file)
    return reading.node(root, 0), reading.problems


def locate(root: object, loc: Sequence[int | str]) -> tuple[Position, Block | None]:
    """Follow a pydantic error's `loc` as far as possible; return the position reached and the block that contains it.

    Parts that are not keys or items (tags of unions, defaults) are ignored.
    """
    current, block = root, None
    for part in loc:
        if isinstance(current, Block) and part in current:
            block, current = current, current[str(part)]
        elif isinstance(current, YamlList) and isinstance(part, int) and part < len(current):
            current = current[part]
    position = current.position if isinstance(current, Scalar | Block | YamlList) else START
    return position, current if isinstance(current, Block) else block


def walk(node: object, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    """Yield every part of a document with its path, outer parts first."""
    yield loc, node
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from walk(inner, (*loc, key)) if isinstance(inner, dict | list) else [((*loc, key), inner)]


def plain(node: object) -> object:
    """Return a part of a document without positions: ordinary texts, lists and dicts."""
    if isinstance(node, dict):
        return {str(key): plain(inner) for key, inner in node.items()}
    if isinstance(node, list):
        return [plain(inner) for inner in node]
    return str(node) if isinstance(node, str) else node


def position_after(before: str, file: IncludedFile | None = None) -> Position:
    """Return the position of the character after this beginning of a file."""
    lines = f"{before}.".splitlines()
    return Position(len(lines), len(lines[-1]), file)


def _too_deep(text: str) -> Position | None:
    """Return the position where the text nests too deeply, None if nowhere: parsing it would overflow the stack."""
    if all(text.count(opener) <= _MAX_DEPTH for opener in _OPENERS):
        return None
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > 4 * _MAX_DEPTH and event.start_mark is not None:
            return Position(event.start_mark.line + 1, event.start_mark.column + 1)
    return None


@dataclass(slots=True)
class _Reading:
    """Converts PyYAML's nodes to texts, lists and blocks with positions."""

    file: IncludedFile | None
    problems: list[MappingProblem] = field(default_factory=list)
    _count: int = 0

    def node(self, node: yaml.Node, depth: int) -> Node:
        self._count += 1
        position = self._position(node)
        if depth > _MAX_DEPTH or self._count > _MAX_NODES:
            if _ENDLESS not in {problem.message for problem in self.problems}:
                self.problems.append(MappingProblem(position, _ENDLESS))
            return Scalar.at(position, "")
        if isinstance(node, yaml.MappingNode):
            return self._block(node, position, depth)
        if isinstance(node, yaml.SequenceNode):
            return YamlList(position, (self.node(item, depth + 1) for item in node.value))
        return Scalar.at(position, node.value)

    def _block(self, node: yaml.MappingNode, position: Position, depth: int) -> Block:
        block = Block(position)
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            place = self._position(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(MappingProblem(place, "a key must be plain text"))
            elif key_node.value == "<<" and not key_node.style:
                merged.append(value_node)
            elif key_node.value in block:
                first = block.key_position(key_node.value).line
                self.problems.append(MappingProblem(place, f'the key "{key_node.value}" occurs twice', f"first in line {first}"))
            else:
                block[Scalar.at(place, key_node.value)] = self.node(value_node, depth + 1)
        for value_node in merged:
            value = self.node(value_node, depth + 1)
            for other in value if isinstance(value, YamlList) else [value]:
                if isinstance(other, Block):
                    block |= {key: inner for key, inner in other.items() if key not in block}
                else:
                    self.problems.append(MappingProblem(self._position(value_node), '"<<" merges a mapping, and this is not one'))
        return block

    def _position(self, node: yaml.Node) -> Position:
        return Position(node.start_mark.line + 1, node.start_mark.column + 1, self.file)
