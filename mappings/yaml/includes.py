"""Files that several feeds include: their named values and named steps join the feed's own before any model looks.

Every part keeps its place in the file where it was written. What `steps` are for is `named_steps`'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mappings.positions import Block, Place, PlaceElsewhere, Row, Slip, place_after, read_blocks
from mappings.refusals import did_you_mean

FRAGMENT_MARK = "_"
"""A file whose name begins so is no feed, though it may stand among feeds: it is there to be included."""
_SHARED = ("let", "steps")


def include_files(document: Block, folder: Path) -> tuple[Slip, ...]:
    """Add what the files named under `include` share to a document; `folder` is the feed file's own.

    What cannot be read or added is told as a slip, in the file where it stands.
    """
    return tuple(slip for name, place in _named_files(document) for slip in _included(document, folder, name, place))


def _named_files(document: Block) -> list[tuple[str, Place]]:
    named = document.get("include")
    files = (
        zip(named, named.places, strict=True)
        if isinstance(named, Row)
        else [(named, document.value_places.get("include", document.place))]
    )
    return [(name, place) for name, place in files if isinstance(name, str)]


def _included(document: Block, folder: Path, name: str, place: Place) -> Iterator[Slip]:
    path = folder / name
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        yield Slip(PlaceElsewhere(place_after(before), path, ""), "the file is not UTF-8 from here on", "save it as UTF-8")
    except (OSError, ValueError) as error:
        near = did_you_mean(name, (str(other.relative_to(folder)) for other in folder.rglob("*.y*ml")))
        yield Slip(place, f'the file "{name}" cannot be included: {error}', near)
    else:
        shared, slips = _read(text, path)
        yield from slips
        yield from _added(document, shared)


def _read(text: str, path: Path) -> tuple[Block, list[Slip]]:
    shared, slips = read_blocks(text)
    told = [Slip(PlaceElsewhere(slip.place, path, text), slip.message, slip.hint) for slip in slips]
    if not isinstance(shared, Block):
        wrong = Slip(PlaceElsewhere((1, 1), path, text), "an included file is a block of keys: let, steps")
        return Block((1, 1)), told or [wrong]
    _move(shared, path, text)
    others = [key for key in shared if key not in _SHARED]
    told += [Slip(shared.key_places[key], f'an included file shares let and steps, not "{key}"') for key in others]
    return shared, told


def _move(node: object, path: Path, text: str) -> None:
    """Mark every place of an included document as standing in its file."""
    if isinstance(node, Row):
        node.place = PlaceElsewhere(node.place, path, text)
        node.places = [PlaceElsewhere(place, path, text) for place in node.places]
        for item in node:
            _move(item, path, text)
    elif isinstance(node, Block):
        node.place = PlaceElsewhere(node.place, path, text)
        node.key_places = {key: PlaceElsewhere(place, path, text) for key, place in node.key_places.items()}
        node.value_places = {key: PlaceElsewhere(place, path, text) for key, place in node.value_places.items()}
        for value in node.values():
            _move(value, path, text)


def _added(document: Block, shared: Block) -> Iterator[Slip]:
    for part in _SHARED:
        names = shared.get(part)
        if not isinstance(names, Block):
            if part in shared:
                yield Slip(shared.value_places[part], "a block of keys is needed")
            continue
        if part not in document:
            document[part] = Block(names.place)
            document.key_places[part], document.value_places[part] = shared.key_places[part], shared.value_places[part]
        there = document[part]
        if isinstance(there, Block):
            yield from _merged(there, names)


def _merged(there: Block, names: Block) -> Iterator[Slip]:
    for name in names:
        if name in there:
            first = _spelt(there.key_places[name])
            yield Slip(names.key_places[name], f'"{name}" is named twice', f"first {first}; give one another name")
            continue
        there[name] = names[name]
        there.key_places[name], there.value_places[name] = names.key_places[name], names.value_places[name]


def _spelt(place: Place) -> str:
    where = f"in {place.path.name}, " if isinstance(place, PlaceElsewhere) else "in "
    return f"{where}line {place[0]}"


def is_shared(path: Path) -> bool:
    """Return whether a file is there to be included: it names no feed, and shares values or steps, or is called like one."""
    document = _document(path)
    return "feed" not in document and (path.name.startswith(FRAGMENT_MARK) or (bool(document) and document.keys() <= {*_SHARED}))


def including(shared: Path, feeds: Iterable[Path]) -> list[Path]:
    """Return those of the feed files that include the file `shared`."""
    return [path for path in feeds if os.path.realpath(shared) in map(os.path.realpath, included_by(path))]


def included_by(feed: Path) -> list[Path]:
    """Return the files that a feed file includes, as the places of what they share name them."""
    return [feed.parent / name for name, _ in _named_files(_document(feed)) if "\0" not in name]


def _document(path: Path) -> Block:
    """Return a file's own keys; none where it cannot be read."""
    try:
        document = read_blocks(path.read_bytes().decode("utf-8-sig"))[0]
    except (OSError, UnicodeDecodeError):
        return Block((1, 1))
    return document if isinstance(document, Block) else Block((1, 1))


USE = "use"
"""The key of a step that stands for a named way of steps."""
_MOST_STEPS = 500
_NOT_VALUES = frozenset({"steps", "include", "source", "examples"})


def open_named_steps(document: Block) -> tuple[Slip, ...]:
    """Put each named way of steps where it is used; every step keeps the place where it was written."""
    named = document.get("steps")
    ways = _Ways(named if isinstance(named, Block) else Block((1, 1)))
    for name in ways.named:
        ways.named[name] = ways.opened(ways.named[name], ways.named.value_places[name], (name,))
    for key in [key for key in document if key not in _NOT_VALUES]:
        ways.open_inside(document[key])
    return tuple(ways.slips)


@dataclass(slots=True)
class _Ways:
    """The named ways of steps of one document, and what was wrong in using them."""

    named: Block
    slips: list[Slip] = field(default_factory=list)
    _circles: list[frozenset[str]] = field(default_factory=list)

    def open_inside(self, node: object) -> None:
        """Open every `do` in a part of the document."""
        if isinstance(node, Row):
            for item in node:
                self.open_inside(item)
        if not isinstance(node, Block):
            return
        for key, value in list(node.items()):
            if key == "do":
                node[key] = self.opened(value, node.value_places[key], ())
            else:
                self.open_inside(value)

    def opened(self, way: object, place: Place, under_way: tuple[str, ...]) -> object:
        """Return a way of steps with those that it uses in their places; one that uses none stays as it is."""
        items = list(zip(way, way.places, strict=True)) if isinstance(way, Row) else [(way, place)]
        if not any(isinstance(item, Block) and USE in item for item, _ in items):
            return way
        row = Row(place)
        for item, where in items:
            for step, there in self._steps_of(item, where, under_way):
                row.append(step)
                row.places.append(there)
        if len(row) > _MOST_STEPS:
            self.slips.append(Slip(place, f"this way is longer than {_MOST_STEPS} steps"))
            del row[_MOST_STEPS:], row.places[_MOST_STEPS:]
        return row

    def _steps_of(self, item: object, place: Place, under_way: tuple[str, ...]) -> Iterator[tuple[object, Place]]:
        if not isinstance(item, Block) or USE not in item:
            yield item, place
            return
        name, way = str(item[USE]), self._way(item, under_way)
        opened = self.opened(way, item.place, (*under_way, name))
        if way is self.named.get(name):
            self.named[name] = opened
        yield from zip(opened, opened.places, strict=True) if isinstance(opened, Row) else [(opened, self._place_of(item))]

    def _way(self, item: Block, under_way: tuple[str, ...]) -> object:
        """Return the way that is used, or an empty one where it cannot be."""
        name, place = item[USE], item.value_places[USE]
        if len(item) > 1:
            other = next(key for key in item if key != USE)
            hint = "write the choice beside the step that it is meant for"
            self.slips.append(Slip(item.key_places[other], f'"{USE}" stands for steps, and "{other}" is no part of it', hint))
        elif not isinstance(name, str) or name not in self.named:
            hint = did_you_mean(str(name), self.named) or "name them under steps"
            self.slips.append(Slip(place, f'there are no steps "{name}"', hint))
        elif name in under_way:
            self._tell_circle(under_way[under_way.index(name) :], place)
        else:
            return self.named[name]
        return Row(place)

    def _tell_circle(self, names: tuple[str, ...], place: Place) -> None:
        if frozenset(names) not in self._circles:
            self._circles.append(frozenset(names))
            shown = " -> ".join((*names, names[0]))
            self.slips.append(Slip(place, f"the named steps go in a circle: {shown}"))

    def _place_of(self, item: Block) -> Place:
        return self.named.value_places.get(str(item[USE]), item.place)
