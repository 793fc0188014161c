"""What one field of the payload can be, and how two such statements become one.

What a mapping file says of which field is `outgoing`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal, TypeVar

from mappings.policies import Policy, Use

T = TypeVar("T")
JsonKind = Literal["integer", "number", "string", "boolean", "array", "object"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What one field of the payload can be. `kind` None: the file does not tell.

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
        if isinstance(policy, Use):
            texts = (policy.use,) if isinstance(policy.use, str) else policy.use
            found = replace(either([_in_place_of(found, texts), found]), is_always=found.is_always)
        elif policy in {"omit", "warn", "draft"}:
            found = replace(found, is_always=False)
    return found


def _in_place_of(found: Outgoing, texts: tuple[str, ...]) -> Outgoing:
    return Outgoing("array", item=one_of(texts)) if found.kind == "array" else one_of(texts)


def with_promise(found: Outgoing, promise: Outgoing) -> Outgoing:
    """Add what is known of a field, whatever the mapping file says of it."""
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
