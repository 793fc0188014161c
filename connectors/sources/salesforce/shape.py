"""What an org says of its objects: their fields, what type each is, and where relationships lead.

How the fields are then asked for is `salesforce_soql`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mappings.errors import PermanentError

NAME_OF_SEVERAL = "Name"
"""The object that tells what parents of several kinds (an owner: a user or a group) have in common."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field that can be asked for: its canonical `path`, its `kind` (Salesforce's type, "" if it is not known)."""

    path: str
    kind: str = ""

    @property
    def steps(self) -> tuple[str, ...]:
        """The keys that lead to its value in a record."""
        return tuple(self.path.split("."))


@dataclass(frozen=True, slots=True)
class Shape:
    """One object: its fields, the parts of its compound ones, its parents and its child rows, by lower-case name."""

    name: str
    fields: Mapping[str, Field]
    parts: Mapping[str, Mapping[str, Field]]
    parents: Mapping[str, tuple[str, tuple[str, ...]]]
    children: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Shape:
        """Read the answer to a describe request.

        Raises:
            KeyError: it is none.
        """
        told = described["fields"]
        return cls(
            described["name"],
            {one["name"].lower(): Field(one["name"], one["type"]) for one in told},
            _parts(told),
            {
                one["relationshipName"].lower(): (one["relationshipName"], tuple(one.get("referenceTo") or ()))
                for one in told
                if one.get("relationshipName")
            },
            {
                one["relationshipName"].lower(): (one["relationshipName"], one["childSObject"])
                for one in described.get("childRelationships") or ()
                if one.get("relationshipName")
            },
        )

    @property
    def names(self) -> tuple[str, ...]:
        """All fields, as they are spelt."""
        return tuple(one.path for one in self.fields.values())

    def has(self, name: str) -> bool:
        """Tell whether it has a field of this name."""
        return name.lower() in self.fields


Describe = Callable[[str], Shape]
"""Asks the org for an object's shape; "" and unknown objects raise."""


@dataclass(slots=True)
class Shapes:
    """The shapes of one reading: each object is described once."""

    describe: Describe
    _known: dict[str, Shape] = field(default_factory=dict)

    def of(self, name: str) -> Shape:
        """Return an object's shape."""
        if name not in self._known:
            self._known[name] = self.describe(name)
        return self._known[name]

    def find(self, shape: Shape, path: str) -> Field | None:
        """Return the field that a path means, whatever its case; None if there is none that we may see."""
        first, _, rest = path.partition(".")
        if not rest:
            found = shape.fields.get(first.lower())
            return None if found and first.lower() in shape.parts and found.kind in COMPOUND else found
        if part := shape.parts.get(first.lower(), {}).get(rest.lower()):
            return part
        name, parents = shape.parents.get(first.lower(), ("", ()))
        if not parents:
            return None
        above = self._above(parents)
        found = Field(rest) if above is None else self.find(above, rest)
        return Field(f"{name}.{found.path}", found.kind) if found else None

    def near(self, shape: Shape, path: str) -> Iterator[str]:
        """Yield the names among which a path that means nothing was probably meant: at the level where it goes astray."""
        first, _, rest = path.partition(".")
        name, parents = shape.parents.get(first.lower(), ("", ()))
        if parts := shape.parts.get(first.lower()):
            yield from (f"{first}.{part}" for part in parts)
        elif rest and parents:
            above = self._above(parents)
            yield from (f"{name}.{inner}" for inner in self.near(above, rest)) if above else ()
        else:
            yield from shape.names
            yield from (name for name, _ in shape.parents.values())

    def _above(self, parents: tuple[str, ...]) -> Shape | None:
        """Return the shape of the parent; None where there are several kinds and the org does not say what they share."""
        if len(parents) == 1:
            return self.of(parents[0])
        try:
            return self.of(NAME_OF_SEVERAL)
        except PermanentError:
            return None


COMPOUND = frozenset({"address", "location"})
"""The types of fields that are several in one; they are asked for by their parts."""


def _parts(told: Iterable[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Field]]:
    """Return of each address and location the fields that it is made of: `city` is BillingCity, or Hall__City__s."""
    compounds = {one["name"]: one for one in told if one["type"] in COMPOUND}
    parts: dict[str, dict[str, Field]] = {name.lower(): {} for name in compounds}
    for one in told:
        whole = one.get("compoundFieldName")
        if isinstance(whole, str) and whole in compounds and whole != one["name"]:
            stem = whole.removesuffix("__c") + "__" if whole.endswith("__c") else whole.removesuffix("Address")
            part = one["name"].removeprefix(stem).removesuffix("__s")
            parts[whole.lower()][part.lower()] = Field(one["name"], one["type"])
    return parts
