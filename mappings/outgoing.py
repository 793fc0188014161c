"""What the payloads of a feed can be, read from its mapping alone: kinds, values, lengths. For checks against the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from typing import Literal, TypeVar

from mappings.event import REQUIRED_FIELDS
from mappings.spec.feed import FeedMapping
from mappings.spec.values import (
    At,
    ChannelValue,
    Choose,
    Fields,
    FirstOf,
    ForEach,
    From,
    ImageValue,
    InZoneValue,
    Items,
    JoinedText,
    ListEntry,
    Meta,
    TableValue,
    Value,
)
from mappings.steps.lookups import LastIn, Lookup, Map, split_columns
from mappings.steps.step import Kind, Step
from mappings.steps.text import Truncate
from mappings.strict import Policy, UsePolicy

T = TypeVar("T")
JsonKind = Literal["integer", "number", "string", "boolean", "array", "object"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What one field of the payload can be. `kind` None: the file does not show it.

    `is_always`: no payload lacks it. `values`: all that it can be, None where rows decide. `sample`: a text of its form.
    `longest`: the most characters it can have, None where nothing bounds it. `item`: what an array holds.
    """

    kind: JsonKind | None = None
    is_always: bool = True
    values: frozenset[str | int] | None = None
    sample: str = ""
    longest: int | None = None
    fields: Mapping[str, Outgoing] = field(default_factory=dict)
    item: Outgoing | None = None


def one_of(texts: Iterable[str]) -> Outgoing:
    """Return what is one of these texts."""
    values = frozenset(texts)
    return Outgoing("string", values=values, longest=max(map(len, values), default=0))


def after(policies: Iterable[Policy | None], found: Outgoing) -> Outgoing:
    """Add what the author's choices may put in a value's place, or leave out."""
    for policy in policies:
        if isinstance(policy, UsePolicy):
            texts = (policy.use,) if isinstance(policy.use, str) else policy.use
            found = replace(either([_in_place_of(found, texts), found]), is_always=found.is_always)
        elif policy in {"omit", "warn", "draft"}:
            found = replace(found, is_always=False)
    return found


def _in_place_of(found: Outgoing, texts: tuple[str, ...]) -> Outgoing:
    return Outgoing("array", item=one_of(texts)) if found.kind == "array" else one_of(texts)


def with_promise(found: Outgoing, promise: Outgoing) -> Outgoing:
    """Add what is known of a field, besides what the mapping file says of it."""
    values = found.values if promise.values is None else (found.values or promise.values) | {"draft"}
    if promise.kind == "integer" and values is not None:
        values = frozenset(int(one) if isinstance(one, str) and one.isascii() and one.isdigit() else one for one in values)
    longest = promise.longest if found.longest is None else found.longest
    return replace(found, kind=promise.kind, values=values, sample=promise.sample, longest=longest)


def either(parts: Iterable[Outgoing]) -> Outgoing:
    """Return what is one or the other of these, one at least."""
    return reduce(_one_or_other, parts)


def _one_or_other(one: Outgoing, other: Outgoing) -> Outgoing:
    return Outgoing(
        kind=one.kind if one.kind == other.kind else None,
        is_always=one.is_always and other.is_always,
        values=_agreed(one.values, other.values, frozenset.union),
        longest=_agreed(one.longest, other.longest, max),
        fields={name: _in_some(one.fields.get(name), other.fields.get(name)) for name in one.fields.keys() | other.fields.keys()},
        item=_one_or_other(one.item or one, other.item or other) if one.item or other.item else None,
    )


def _in_some(one: Outgoing | None, other: Outgoing | None) -> Outgoing:
    if one is not None and other is not None:
        return _one_or_other(one, other)
    return replace(one or other or Outgoing(), is_always=False)


def joined_objects(one: Outgoing, other: Outgoing) -> Outgoing:
    """Join two readings of one object, each from a dotted name of its own."""
    names = one.fields.keys() | other.fields.keys()
    fields = {name: _of_two(one.fields.get(name), other.fields.get(name)) for name in names}
    return Outgoing("object", one.is_always or other.is_always, fields=fields)


def _of_two(one: Outgoing | None, other: Outgoing | None) -> Outgoing:
    if one is not None and other is not None:
        return joined_objects(one, other)
    return one or other or Outgoing()


def _agreed(one: T | None, other: T | None, join: Callable[[T, T], T]) -> T | None:
    return None if one is None or other is None else join(one, other)


_MOMENT = Outgoing("string", sample="2030-05-01T19:30:00+02:00", longest=32)
_LISTED = frozenset({"classifications"})
_NEEDED = frozenset(REQUIRED_FIELDS)
"""A row without one of these is rejected before it is sent."""
_KNOWN: Mapping[str, Outgoing] = {
    "channelId": Outgoing("integer"),
    "coverImage": Outgoing("integer"),
    "startAt": _MOMENT,
    "endAt": _MOMENT,
    "status": Outgoing("string", values=frozenset({"draft", "published"})),
    "timezone": Outgoing("string", sample="Europe/Lisbon"),
    "approxLocation.city.countryCode": Outgoing("string", sample="PT", longest=2),
    "offers[].url": Outgoing("string", sample="https://example.org/tickets?from=1"),
}
"""What our own payload model promises of a field."""


def outgoing_of(mapping: FeedMapping) -> Outgoing:
    """Return what the payloads of a feed can be, as one object."""
    return _Reading(mapping).object(mapping.event.root, "")


class _Reading:
    """Reads the values of one mapping."""

    def __init__(self, mapping: FeedMapping) -> None:
        self._mapping = mapping

    def object(self, fields: Mapping[str, Value], path: str) -> Outgoing:
        """Read an object; dotted names reach into objects inside."""
        found: dict[str, Outgoing] = {}
        for dotted, value in fields.items():
            name, _, rest = dotted.partition(".")
            inner = f"{path}.{name}" if path else name
            read = self.object({rest: value}, inner) if rest else self.field(value, inner)
            found[name] = joined_objects(found[name], read) if name in found else read
        return Outgoing("object", any(one.is_always for one in found.values()), fields=found)

    def field(self, value: Value, path: str) -> Outgoing:
        """Read the value of one field, and add what our payload model promises of it."""
        found = self.value(value, path)
        if path in _LISTED:
            texts = found.item or found
            item = replace(texts, kind="string", is_always=True, item=None, fields={})
            return Outgoing("array", item=item)
        found = replace(found, is_always=found.is_always or path in _NEEDED)
        return with_promise(found, _KNOWN[path]) if path in _KNOWN else found

    def value(self, value: Value, path: str) -> Outgoing:  # noqa: C901, PLR0911, PLR0912  # one arm per kind of value
        match value:
            case str():
                return self._text(value, path)
            case Fields():
                return self.object(value.root, path)
            case ListEntry():
                return replace(self.object(value.fields.root, path), is_always=False)
            case Items():
                return self._items(value, path)
            case From():
                found = self._steps(self._text(value.source, path) if value.source[0] == "$" else Outgoing("string"), value.do)
            case FirstOf():
                found = self._steps(either(self.value(part, path) for part in value.first_of), value.do)
            case JoinedText():
                found = self._steps(Outgoing("string"), value.do)
            case Choose():
                branches = [choice.then for choice in value.choose]
                branches += [] if value.otherwise is None else [value.otherwise]
                found = either(self.value(part, path) for part in branches)
                found = replace(found, is_always=found.is_always and value.otherwise is not None)
            case TableValue():
                found = after((value.on_miss,), self._table(value.lookup, len(value.by), value.take, is_many=value.many))
            case ForEach():
                return after((value.on_empty, value.on_error), self._for_each(value, path))
            case Meta():
                found = self._steps(Outgoing("number" if value.meta == "row" else "string"), value.do)
            case ChannelValue():
                found = Outgoing("integer")
            case At() | InZoneValue():
                found = _MOMENT
            case ImageValue():
                return Outgoing("integer", is_always=False)
        return after((value.on_empty, value.on_error), found)

    def _text(self, text: str, path: str) -> Outgoing:
        if not text.startswith("$"):
            return one_of([text])
        if text.startswith("$$"):
            return one_of([text[1:]])
        named = self._mapping.let.get(text[1:])
        return Outgoing() if named is None else self.value(named, path)

    def _items(self, value: Items, path: str) -> Outgoing:
        parts = [self.field(part, f"{path}[]") if isinstance(part, str) else self._item(part, path) for part in value.root]
        return Outgoing("array", any(part.is_always for part in parts), item=replace(either(parts), is_always=True))

    def _for_each(self, value: ForEach, path: str) -> Outgoing:
        item = self._item(value.give, path) if isinstance(value.give, Fields | ListEntry) else self.field(value.give, f"{path}[]")
        return Outgoing("array", item=replace(item, is_always=True))

    def _item(self, part: Value, path: str) -> Outgoing:
        return self.value(part, f"{path}[]")

    def _steps(self, source: Outgoing, steps: Iterable[Step]) -> Outgoing:
        return reduce(self._step, steps, source)

    def _step(self, before: Outgoing, step: Step) -> Outgoing:
        """Read what a step makes of what it is given; a text step works on each item of a list."""
        found = self._made(before, step)
        if before.kind == "array" and step.takes is not Kind.LIST and found.kind != "array":
            found = Outgoing("array", before.is_always and found.is_always, item=found)
        return after((step.policy if isinstance(step, Map | Lookup | LastIn) else step.on_error,), found)

    def _made(self, before: Outgoing, step: Step) -> Outgoing:
        always = before.is_always
        match step:
            case Map() | Lookup() if step.keeps:
                return Outgoing(None if isinstance(step, Lookup) and step.many else "string", always)
            case Map():
                item = one_of(chain.from_iterable(step.table.values()))
                return Outgoing("array", always, item=item) if step.gives_several else replace(item, is_always=always)
            case Lookup() | LastIn():
                return replace(self._table(step.file, 1, step.take, is_many=step.many), is_always=always)
            case Truncate():
                return Outgoing("string", always, longest=step.length)
            case _:
                return Outgoing(_KINDS.get(step.result), always, sample=before.sample if step.gives is step.takes else "")

    def _table(self, file: str, keys: int, take: tuple[str, ...] | None, *, is_many: bool) -> Outgoing:
        table = self._mapping.tables[file]
        results = split_columns(table, keys, take)[1]
        columns = {name: [row[table.columns.index(name)] for row in table.rows] for name in results}
        found = {name: replace(one_of(filter(None, cells)), is_always=all(cells)) for name, cells in columns.items()}
        one = found[results[0]] if len(results) == 1 else Outgoing("object", fields=found)
        return Outgoing("array", item=replace(one, is_always=True)) if is_many else one


_KINDS: Mapping[Kind, JsonKind] = {
    Kind.TEXT: "string",
    Kind.DATE: "string",
    Kind.CLOCK: "string",
    Kind.WALL: "string",
    Kind.MOMENT: "string",
    Kind.NUMBER: "number",
    Kind.BOOLEAN: "boolean",
    Kind.LIST: "array",
}
