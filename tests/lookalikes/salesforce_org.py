"""An org as the look-alike keeps it: objects, records, users, and what is to go wrong."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from lookalikes.salesforce_soql import Record, RefusedError, Select, comparable, is_same, parse

SYSTEM = {"Id": "id", "IsDeleted": "boolean", "Name": "string", "CreatedDate": "datetime", "SystemModstamp": "datetime"}
PARTS = {
    "address": ("Street", "City", "State", "PostalCode", "Country", "Latitude", "Longitude"),
    "location": ("Latitude", "Longitude"),
}


@dataclass
class SObject:
    """`fields` name the types of its own fields; `parents` the relationships to other objects by their reference fields."""

    name: str
    fields: dict[str, str] = field(default_factory=dict)
    parents: dict[str, tuple[str, str]] = field(default_factory=dict)
    children: dict[str, tuple[str, str]] = field(default_factory=dict)
    records: Sequence[Record] = field(default_factory=list)
    archives: bool = False
    is_described: bool = True
    choices: dict[str, list[str]] = field(default_factory=dict)
    """The values that picklists offer."""

    def all_fields(self) -> dict[str, str]:
        archived = {"IsArchived": "boolean"} if self.archives else {}
        parts = {part: "string" for name, kind in self.fields.items() if kind in PARTS for part in self.parts(name)}
        return SYSTEM | archived | self.fields | dict.fromkeys(self.parents, "reference") | parts

    def parts(self, whole: str) -> Iterator[str]:
        for part in PARTS[self.fields[whole]]:
            yield f"{whole[:-3]}__{part}__s" if whole.endswith("__c") else f"{whole.removesuffix('Address')}{part}"

    def describe(self) -> dict[str, Any]:
        if not self.is_described:
            return {}
        told = []
        wholes = {part: name for name, kind in self.fields.items() if kind in PARTS for part in self.parts(name)}
        for name, kind in self.all_fields().items():
            kind = "double" if name in wholes and "tude" in name else kind  # noqa: PLW2901
            relation, parent = self.parents.get(name, (None, None))
            one = {"name": name, "type": kind, "label": name, "compoundFieldName": wholes.get(name)}
            one |= {
                "picklistValues": [{"value": text, "label": text.upper(), "active": True} for text in self.choices.get(name, ())]
            }
            told.append(one | {"relationshipName": relation, "referenceTo": parent.split(",") if parent else []})
        children = [{"relationshipName": name, "childSObject": child} for name, (child, _) in self.children.items()]
        return {"name": self.name, "fields": told, "childRelationships": children, "queryable": True}


@dataclass
class Troubles:
    """What is to go wrong. Numbers of data requests count queries, pages and results, from 1."""

    page_rows: int = 2000
    sessions_end_at: set[int] = field(default_factory=set)
    sessions_die_at_once: bool = False
    locators_end_at: set[int] = field(default_factory=set)
    locators_die_with_sessions: bool = False
    answers: list[tuple[int, str, str]] = field(default_factory=list)
    """The next data requests are answered so: status, code, message."""
    packed: list[bytes] = field(default_factory=list)
    """The next data requests are answered so: the bytes that gzip has made of an answer."""
    retry_after: str = ""
    location: str = ""
    """Where refusals lead to, if they are redirects."""
    polls: int = 1
    fails_as: str = ""
    not_in_bulk: bool = False
    locators_belong_to_sessions: bool = False
    """A page asked for in another session is answered as if that session had ended."""
    lost_rows: list[int] = field(default_factory=list)
    """The next results end, in good order, so many records too early."""
    bare_results: int = 0
    """So many of the next results are an empty text, and nothing tells how many records there are."""
    forgets_chunks: bool = False
    """Each chunk of results is told to be the last."""
    login_answer: tuple[int, str] | None = None
    """What every login by password is answered: status and text."""
    pages_lead_nowhere: bool = False
    """Each further page is empty, and leads to itself."""
    sends_at_once: bool = False
    """Results come in one piece of a length that is told, and not packed."""
    lost_from_pages: int = 0
    """Each page lacks so many records at its end."""
    cut_after: list[int] = field(default_factory=list)
    """The next results break off after so many bytes."""
    before_page: Callable[[int], None] = lambda _: None
    """Called with the number of each data request: where somebody edits in the middle."""


@dataclass
class Org:
    objects: dict[str, SObject] = field(default_factory=dict)
    username: str = "worker@example.com"
    password: str = "correct-horse-battery"
    token: str = "security-token-4711"
    consumer_key: str = "consumer-key-3MVG9"
    consumer_secret: str = "consumer-secret-8812"
    public_key: bytes = b""
    troubles: Troubles = field(default_factory=Troubles)
    used: int = 0
    allowed: int = 15_000
    logins: int = 0
    data_requests: int = 0
    sessions: set[str] = field(default_factory=set)
    locators: dict[str, tuple[list[Record], Select, str, int]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Each request: method and path; of queries the SOQL instead of the path."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def add(self, *objects: SObject) -> Org:
        self.objects |= {one.name: one for one in objects}
        return self

    def open_session(self) -> str:
        self.logins += 1
        session = f"00Dx0000000BV7z!session-{self.logins:04}-{'q7' * 20}"
        self.sessions = set() if self.troubles.sessions_die_at_once else {session}
        if self.troubles.locators_die_with_sessions:
            self.locators.clear()
        return session

    def matching(self, select: Select, *, with_deleted: bool) -> list[Record]:
        one = self.object(select.source)
        self.check(one, [*(path for path in select.fields if isinstance(path, str)), *select.paths])
        hidden = () if with_deleted else ("IsDeleted", "IsArchived")
        found = [
            record
            for record in one.records
            if not any(record.get(flag) for flag in hidden)
            and (select.where is None or select.where(partial(self.get, one, record)))
        ]
        for path, is_falling in reversed(select.order):
            found.sort(key=lambda record: _sortable(self.get(one, record, path)), reverse=is_falling)
        return found if select.limit is None else found[: select.limit]

    def object(self, name: str) -> SObject:
        for known, one in self.objects.items():
            if known.lower() == name.lower():
                return one
        raise RefusedError(
            "INVALID_TYPE", f"sObject type '{name}' is not supported. If you are attempting to use a custom object"
        )

    def parent(self, names: str) -> SObject:
        """The object above; of several kinds of parents, what they have in common."""
        return self.object("Name" if "," in names else names)

    def check(self, one: SObject, paths: Iterable[str]) -> None:
        for path in paths:
            first, _, rest = path.partition(".")
            relations = {name.lower(): parent for name, parent in one.parents.values()}
            if rest and first.lower() in relations:
                self.check(self.parent(relations[first.lower()]), [rest])
            elif rest:
                raise RefusedError("INVALID_FIELD", f"Didn't understand relationship '{first}' in field path.")
            elif first.lower() not in map(str.lower, one.all_fields()):
                text = f"\nSELECT Id, {first}\n           ^\nERROR at Row:1:Column:12\n"
                text += f"No such column '{first}' on entity '{one.name}'."
                raise RefusedError(
                    "INVALID_FIELD", f"{text} If you are attempting to use a custom field, be sure to append the '__c'"
                )

    def get(self, one: SObject, record: Record, path: str) -> Any:
        first, _, rest = path.partition(".")
        if not rest:
            return record.get(first, record.get(_canonical(one, first)))
        _, above, row = self._above(one, record, first)
        return None if row is None else self.get(above, row, rest)

    def json_of(self, select: Select, record: Record) -> dict[str, Any]:
        one = self.object(select.source)
        url = f"/services/data/v59.0/sobjects/{one.name}/{record['Id']}"
        told: dict[str, Any] = {"attributes": {"type": one.name, "url": url}}
        for path in select.fields:
            if isinstance(path, Select):
                told[path.source] = self.children(one, record, path)
            else:
                self._put(one, told, path, record)
        return told

    def children(self, one: SObject, record: Record, inner: Select) -> dict[str, Any] | None:
        child, reference = one.children[inner.source]
        below = Select(inner.fields, child, lambda get: is_same(get(reference), record["Id"]), inner.order, inner.limit)
        found = self.matching(below, with_deleted=False)
        return self.page(found, below, "child") if found else None

    def page(self, records: list[Record], select: Select, kind: str, start: int = 0, total: int = -1) -> dict[str, Any]:
        rows = self.troubles.page_rows
        told = {"totalSize": len(records) if total < 0 else total, "done": start + rows >= len(records)}
        if not told["done"]:
            locator = f"01g{next(self.numbers):012}-{start + rows}"
            self.locators[locator] = (records, select, kind, self.logins)
            told["nextRecordsUrl"] = f"/services/data/v59.0/query/{locator}"
        given = records[start : start + rows]
        told["records"] = [self.json_of(select, record) for record in given[: len(given) - self.troubles.lost_from_pages]]
        return told

    def run(self, soql: str, *, with_deleted: bool) -> dict[str, Any]:
        select = parse(soql)
        if select.is_count:
            return {"totalSize": len(self.matching(select, with_deleted=with_deleted)), "done": True, "records": []}
        return self.page(self.matching(select, with_deleted=with_deleted), select, "query")

    def more(self, locator: str) -> dict[str, Any]:
        if locator not in self.locators:
            raise RefusedError("INVALID_QUERY_LOCATOR", "invalid query locator")
        records, select, kind, session = self.locators[locator]
        if self.troubles.locators_belong_to_sessions and session != self.logins:
            raise RefusedError("INVALID_SESSION_ID", "Session expired or invalid")
        return self.page(records, select, kind, int(locator.rpartition("-")[2]))

    def _put(self, one: SObject, told: dict[str, Any], path: str, record: Record) -> None:
        first, _, rest = path.partition(".")
        if not rest:
            told[_canonical(one, first)] = self.get(one, record, first)
            return
        name, above, row = self._above(one, record, first)
        if row is None:
            told[name] = None
        else:
            self._put(above, told.setdefault(name, {"attributes": {"type": above.name}}), rest, row)

    def _above(self, one: SObject, record: Record, relation: str) -> tuple[str, SObject, Record | None]:
        """The name of a relationship, the object that it leads to, and the record there."""
        reference, (name, parent) = next((field, of) for field, of in one.parents.items() if of[0].lower() == relation.lower())
        above, wanted = self.parent(parent), record.get(reference)
        return name, above, next((row for row in above.records if wanted and row["Id"][:15] == wanted[:15]), None)


def _canonical(one: SObject, name: str) -> str:
    return next((known for known in one.all_fields() if known.lower() == name.lower()), name)


def _sortable(value: Any) -> Any:
    return (value is not None, comparable(value) if value is not None else 0)


def dumps(value: Any) -> str:
    """JSON as Salesforce writes it: decimals with their digits."""
    marks: dict[str, str] = {}

    def mark(number: Any) -> str:
        name = f"\x00{len(marks)}\x00"
        marks[json.dumps(name)] = str(number)
        return name

    text = json.dumps(value, default=lambda one: mark(one) if isinstance(one, Decimal) else str(one))
    if marks:
        text = re.sub(r'"\\u0000\d+\\u0000"', lambda match: marks[match[0]], text)
    return text


def csv_cell(value: Any, kind: str) -> str:
    """A cell as Bulk API 2.0 writes it: quoted, moments with a Z, numbers as a double prints."""
    match value:
        case None:
            text = ""
        case bool():
            text = "true" if value else "false"
        case Decimal() | int() | float():
            text = _as_double(Decimal(value))
        case _:
            text = str(value)
    if kind == "datetime":
        text = text.replace("+0000", "Z")
    return '"' + text.replace('"', '""') + '"'


def _as_double(number: Decimal) -> str:
    """A number as Java prints a double: 100.0, 12.5, 1.25E7."""
    if abs(number) < 10**7:
        return str(float(number))
    digits, exponent = f"{number:E}".split("E")
    mantissa = digits.rstrip("0").rstrip(".") if "." in digits else digits
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
