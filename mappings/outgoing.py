"""Infers from a mapping alone what a feed's payloads may contain: fields, kinds and fixed values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from typing import Any, Literal

from mappings.lookup_table import normaliser
from mappings.spec import values as spec
from mappings.spec.feed import FeedMapping
from mappings.spec.rules import Skip
from mappings.spec.values import Value
from mappings.steps.lookups import LastIn, Lookup, Map, split_columns
from mappings.steps.step import Kind, Step
from mappings.strict import Policy, UsePolicy

JsonKind = Literal["integer", "number", "string", "boolean", "array", "object"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One payload field. `kind` is None if the mapping does not show it; `item`: the items of an array.

    `values`: those that the mapping itself gives; rows may give others.
    """

    kind: JsonKind | None = None
    values: frozenset[str | int] = frozenset()
    fields: Mapping[str, Outgoing] = field(default_factory=dict)
    item: Outgoing | None = None


def one_of(texts: Iterable[str]) -> Outgoing:
    """Return the description of a value that is one of these texts."""
    return Outgoing("string", frozenset(texts))


def _after(found: Outgoing, *policies: Policy | None) -> Outgoing:
    """Return a value's description after its policies, which may replace the value."""
    for policy in policies:
        if isinstance(policy, UsePolicy):
            texts = one_of((policy.use,) if isinstance(policy.use, str) else policy.use)
            found = _either(Outgoing("array", item=texts) if found.kind == "array" else texts, found)
    return found


def _either(one: Outgoing, other: Outgoing) -> Outgoing:
    """Return the description of a value that matches one of two descriptions."""
    fields = {**one.fields, **other.fields}
    fields |= {name: _either(one.fields[name], other.fields[name]) for name in one.fields.keys() & other.fields.keys()}
    return Outgoing(
        kind=one.kind if one.kind == other.kind else None,
        values=one.values | other.values,
        fields=fields,
        item=_either(one.item or one, other.item or other) if one.item or other.item else None,
    )


def _without(found: Outgoing, test: spec.Test) -> Outgoing:
    """Return a value's description without the values whose rows a `skip` rule leaves out; `contains` tests a list."""
    kept = found.item if test.contains else found
    if kept is None:
        return found
    same = normaliser(test.ignore)
    texts = set(map(same, test.contains or test.among or (test.equals or "",)))
    kept = replace(kept, values=frozenset(value for value in kept.values if same(str(value)) not in texts))
    return replace(found, item=kept) if test.contains else kept


_UNKNOWN = Outgoing()
_IDS = frozenset({"channelId", "coverImage"})
_KINDS: Mapping[Kind, JsonKind] = {
    **dict.fromkeys((Kind.TEXT, Kind.DATE, Kind.CLOCK, Kind.WALL, Kind.MOMENT, Kind.DURATION), "string"),
    Kind.NUMBER: "number",
    Kind.BOOLEAN: "boolean",
    Kind.LIST: "array",
}


def outgoing_of(mapping: FeedMapping) -> Outgoing:
    """Return the description of a feed's payloads, as one object."""
    return _Reading(mapping).object(mapping.event.unfolded()[0], "")


class _Reading:
    """Derives descriptions from the values of one mapping."""

    def __init__(self, mapping: FeedMapping) -> None:
        self._mapping = mapping
        self._left_out: defaultdict[str, list[spec.Test]] = defaultdict(list)
        for rule in mapping.rows:
            if isinstance(rule, Skip):
                for one in rule.skip.any if isinstance(rule.skip, spec.Any) else (rule.skip,):
                    if isinstance(one, spec.Test) and one.value and one.tests[0] in spec.TEXT_TESTS and len(one.tests) == 1:
                        self._left_out[one.value[1:]].append(one)

    def object(self, tree: Mapping[str, Any], path: str) -> Outgoing:
        """Return the description of an object whose dotted names are expanded."""
        fields = {}
        for name, inner in tree.items():
            inside = f"{path}.{name}" if path else name
            fields[name] = self.object(inner, inside) if isinstance(inner, dict) else self.field(inner[0], inside)
        return Outgoing("object", fields=fields)

    def field(self, value: Value, path: str) -> Outgoing:
        """Return the description of one field, of the kind that our payload model gives it."""
        found = self.value(value, path)
        if path == "classifications":
            return Outgoing("array", item=replace(found.item or found, kind="string", item=None, fields={}))
        if path not in _IDS:
            return found
        values = frozenset(int(one) if one.isascii() and one.isdigit() else one for one in map(str, found.values))
        return replace(found, kind="integer", values=values)

    def value(self, value: Value, path: str) -> Outgoing:  # noqa: C901, PLR0912  # one arm per kind of value
        match value:
            case str():
                return self._reference(value, path) or one_of([value.removeprefix("$")])
            case spec.Fields():
                return self.object(value.unfolded()[0], path)
            case spec.ListEntry():
                return self.object(value.fields.unfolded()[0], path)
            case spec.Items():
                return Outgoing("array", item=reduce(_either, [self.field(part, f"{path}[]") for part in value.root]))
            case spec.ImageValue():
                return Outgoing("integer")
            case spec.From():
                found = self._steps(self._reference(value.source, path) or Outgoing("string"), value.do)
            case spec.FirstOf():
                found = self._steps(reduce(_either, [self.value(part, path) for part in value.first_of]), value.do)
            case spec.JoinedText():
                found = self._steps(Outgoing("string"), value.do)
            case spec.Choose():
                branches = [choice.then for choice in value.choose]
                branches += [] if value.otherwise is None else [value.otherwise]
                found = reduce(_either, [self.value(part, path) for part in branches])
            case spec.TableValue():
                found = _after(self._table(value.lookup, len(value.by), value.take, is_many=value.many), value.on_miss)
            case spec.ForEach():
                found = Outgoing("array", item=self.field(value.give, f"{path}[]"))
            case spec.Meta():
                found = self._steps(Outgoing("number" if value.meta == "row" else "string"), value.do)
            case spec.ChannelValue():
                found = Outgoing("integer")
            case spec.At() | spec.InZoneValue() | spec.PlusValue():
                found = Outgoing("string")
        return _after(found, value.on_empty, value.on_error)

    def _reference(self, text: str, path: str) -> Outgoing | None:
        """Return the description of a named value; None for a text that is not a reference."""
        if not text.startswith("$") or text.startswith("$$"):
            return None
        named = self._mapping.let.get(text[1:])
        return _UNKNOWN if named is None else reduce(_without, self._left_out[text[1:]], self.value(named, path))

    def _steps(self, found: Outgoing, steps: Iterable[Step]) -> Outgoing:
        """Return the description of a value after its steps; a text step works on each item of a list."""
        for step in steps:
            before, found = found, self._made(step)
            if before.kind == "array" and step.takes is not Kind.LIST and found.kind != "array":
                found = Outgoing("array", item=found)
            found = _after(found, step.policy if isinstance(step, Map | Lookup | LastIn) else step.on_error)
        return found

    def _made(self, step: Step) -> Outgoing:
        match step:
            case Map() | Lookup() if step.keeps:
                return Outgoing(None if isinstance(step, Lookup) and step.many else "string")
            case Map():
                item = one_of(chain.from_iterable(step.table.values()))
                return Outgoing("array", item=item) if step.gives_several else item
            case Lookup() | LastIn():
                return self._table(step.file, 1, step.take, is_many=step.many)
            case _:
                return Outgoing(_KINDS.get(step.result))

    def _table(self, file: str, keys: int, take: tuple[str, ...] | None, *, is_many: bool) -> Outgoing:
        table = self._mapping.tables[file]
        results = split_columns(table, keys, take)[1]
        columns = {name: [row[table.columns.index(name)] for row in table.rows] for name in results}
        found = {name: one_of(filter(None, cells)) for name, cells in columns.items()}
        one = found[results[0]] if len(results) == 1 else Outgoing("object", fields=found)
        return Outgoing("array", item=one) if is_many else one
