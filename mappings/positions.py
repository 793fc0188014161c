"""YAML text as plain texts, lists and blocks that remember where each of them stands in the file.

What the keys mean is the models' business; nothing here gives a scalar a type: `no`, `02134` and `1.0` stay text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

Place = tuple[int, int]
"""Line and column, both from 1."""
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_MAX_NODES = 200_000
_MAX_DEPTH = 60
_ENDLESS = "the file nests too deeply or repeats an anchor without end"
_OPENERS = ("[", "{", "- ", "? ")


class Block(dict[str, object]):
    """A YAML mapping: `key_places` and `value_places` say where each entry stands, `allowed` what its model names."""

    __slots__ = ("allowed", "key_places", "place", "value_places")

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.key_places: dict[str, Place] = {}
        self.value_places: dict[str, Place] = {}
        self.allowed: tuple[str, ...] = ()


class Row(list[object]):
    """A YAML sequence: `places` says where each item stands."""

    __slots__ = ("place", "places")

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.places: list[Place] = []


@dataclass(frozen=True, slots=True)
class Slip:
    """A mistake in the YAML itself, before any model has seen it."""

    place: Place
    message: str
    hint: str = ""


@dataclass(slots=True)
class _Reading:
    slips: list[Slip] = field(default_factory=list)
    nodes: int = 0
    is_endless: bool = False


def read_blocks(text: str) -> tuple[object, tuple[Slip, ...]]:
    """Return the document as texts, `Row`s and `Block`s, with every slip found on the way.

    The document is None where the text is no YAML at all, and partial where there are slips.
    """
    reading = _Reading()
    try:
        deep = _too_deep(text)
        node = None if deep else yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        return None, (_yaml_slip(error, text),)
    if deep:
        return None, (Slip(deep, _ENDLESS),)
    if node is None:
        return None, (Slip((1, 1), "the file is empty"),)
    return _plain(node, reading, 0), tuple(reading.slips)


def locate(root: object, loc: Sequence[int | str]) -> tuple[Place, Block | None]:
    """Follow a pydantic error's `loc` as far as the document goes: the place reached, and the block it stands in.

    Parts that name no key or item (tags of unions, defaults) are passed over.
    """
    place: Place = root.place if isinstance(root, Block | Row) else (1, 1)
    current, block = root, None
    for part in loc:
        if isinstance(current, Block) and isinstance(part, str) and part in current:
            place, block, current = current.value_places[part], current, current[part]
        elif isinstance(current, Row) and isinstance(part, int) and part < len(current):
            place, current = current.places[part], current[part]
    return place, current if isinstance(current, Block) else block


def _too_deep(text: str) -> Place | None:
    """Return where the text first nests deeper than any feed does: composing it would exhaust the machine's stack."""
    if all(text.count(opener) <= _MAX_DEPTH for opener in _OPENERS):
        return None
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > 4 * _MAX_DEPTH and event.start_mark is not None:
            return (event.start_mark.line + 1, event.start_mark.column + 1)
    return None


def _place(node: yaml.Node) -> Place:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1)


def _plain(node: yaml.Node, reading: _Reading, depth: int) -> object:
    reading.nodes += 1
    if depth > _MAX_DEPTH or reading.nodes > _MAX_NODES:
        if not reading.is_endless:
            reading.slips.append(Slip(_place(node), _ENDLESS))
            reading.is_endless = True
        return ""
    if isinstance(node, yaml.MappingNode):
        return _block(node, reading, depth)
    if isinstance(node, yaml.SequenceNode):
        return _row(node, reading, depth)
    return str(node.value)


def _row(node: yaml.SequenceNode, reading: _Reading, depth: int) -> Row:
    row = Row(_place(node))
    for item in node.value:
        row.append(_plain(item, reading, depth + 1))
        row.places.append(_place(item))
    return row


def _block(node: yaml.MappingNode, reading: _Reading, depth: int) -> Block:
    block = Block(_place(node))
    merged: list[yaml.Node] = []
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            reading.slips.append(Slip(_place(key_node), "a key must be plain text"))
        elif key_node.value == "<<" and not key_node.style:
            merged.append(value_node)
        elif key_node.value in block:
            line = block.key_places[key_node.value][0]
            reading.slips.append(Slip(_place(key_node), f'the key "{key_node.value}" stands twice', f"first in line {line}"))
        else:
            _put(block, key_node, value_node, _plain(value_node, reading, depth + 1))
    for value_node in merged:
        _merge(block, _plain(value_node, reading, depth + 1), value_node, reading)
    return block


def _put(block: Block, key_node: yaml.ScalarNode, value_node: yaml.Node, value: object) -> None:
    key = str(key_node.value)
    block[key] = value
    block.key_places[key], block.value_places[key] = _place(key_node), _place(value_node)


def _merge(block: Block, value: object, node: yaml.Node, reading: _Reading) -> None:
    for other in value if isinstance(value, Row) else [value]:
        if not isinstance(other, Block):
            reading.slips.append(Slip(_place(node), '"<<" merges a mapping, and this is not one'))
            continue
        for key in other.keys() - block.keys():
            block[key] = other[key]
            block.key_places[key], block.value_places[key] = other.key_places[key], other.value_places[key]


def _yaml_slip(error: yaml.YAMLError, text: str) -> Slip:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        if text[mark.index : mark.index + 1] == "\t":
            return Slip((mark.line + 1, mark.column + 1), "this is not YAML: a tab stands here, indent with spaces")
        context = f" ({error.context})" if error.context else ""
        return Slip((mark.line + 1, mark.column + 1), f"this is not YAML: {error.problem}{context}")
    if isinstance(error, yaml.reader.ReaderError):
        return Slip(place_after(text[: error.position]), "this is not YAML: a control character stands here")
    return Slip((1, 1), f"this is not YAML: {error}")


def place_after(before: str) -> Place:
    """Return the place of the character that follows this beginning of a file."""
    lines = f"{before}.".splitlines()
    return (len(lines), len(lines[-1]))


Loc = tuple[int | str, ...]
"""A place in the mapping file, as keys and positions."""


@dataclass(frozen=True, slots=True)
class ValuePosition:
    """Where a value stands: in the file, in the payload; and whether it may be empty there."""

    loc: Loc
    path: str = ""
    may_be_empty: bool = False

    def inner(self, *loc: int | str, may_be_empty: bool | None = None) -> ValuePosition:
        """Return the spot of a value inside this one."""
        return ValuePosition(self.loc + loc, self.path, self.may_be_empty if may_be_empty is None else may_be_empty)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the file that cannot be compiled."""

    loc: Loc
    message: str
    hint: str = ""


class PlaceElsewhere(tuple[int, int]):  # noqa: SLOT001 - a tuple of a variable length has no slots
    """A place in another file than the feed's own: line and column as ever, and the file with its text."""

    path: Path
    text: str

    def __new__(cls, place: Place, path: Path, text: str) -> Self:
        """Mark a place as standing in that file."""
        marked = super().__new__(cls, place)
        marked.path, marked.text = path, text
        return marked


def walk(node: object, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    """Yield every part of a plain document with its place, an outer part before the parts inside it."""
    yield loc, node
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from walk(inner, (*loc, key))
