"""Named ways of steps, written once under `steps` and put where `{use: NAME}` stands, before any model looks at the document.

What other files share is `includes`'s; what a step does is `transforms`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mappings.marks import Block, Place, Row, Slip
from mappings.refusals import did_you_mean

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
