"""Files that several feeds include: their named values and named steps join the feed's own before any model looks.

Every part keeps its place in the file where it was written. What `steps` are for is `named_steps`'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from mappings.marks import Block, Place, Row, Slip, place_after, read_blocks
from mappings.refusals import did_you_mean

FRAGMENT_MARK = "_"
"""A file whose name begins so is no feed, though it may stand among feeds: it is there to be included."""
_SHARED = ("let", "steps")


class PlaceElsewhere(tuple[int, int]):  # noqa: SLOT001 - a tuple of a variable length has no slots
    """A place in another file than the feed's own: line and column as ever, and the file with its text."""

    path: Path
    text: str

    def __new__(cls, place: Place, path: Path, text: str) -> Self:
        """Mark a place as standing in that file."""
        marked = super().__new__(cls, place)
        marked.path, marked.text = path, text
        return marked


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
