"""As much of SOQL as the look-alike of Salesforce needs to answer honestly: fields, child rows, conditions, order, COUNT()."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

Record = dict[str, Any]
Holds = Callable[[Callable[[str], Any]], bool]
T = TypeVar("T")

_TOKEN = re.compile(
    r"\s*('(?:[^'\\]|\\.)*'|\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:?\d\d))?|-?\d+(?:\.\d+)?|<=|>=|!=|[<>=(),]|[A-Za-z_][\w.:]*)",
    re.DOTALL,
)
_UNESCAPE = {"n": "\n", "r": "\r", "t": "\t"}


class RefusedError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Select:
    """`where` holds for a record if it does for the getter of its fields; `paths` are the fields that it reads."""

    fields: list[Any]
    source: str
    where: Holds | None = None
    order: list[tuple[str, bool]] = field(default_factory=list)
    limit: int | None = None
    is_count: bool = False
    paths: list[str] = field(default_factory=list)


def parse(soql: str) -> Select:
    tokens, place = [], 0
    while place < len(soql.rstrip()):
        match = _TOKEN.match(soql, place)
        if match is None:
            raise RefusedError("MALFORMED_QUERY", f"unexpected token: '{soql[place : place + 10]}'")
        tokens.append(match[1])
        place = match.end()
    parser = _Parser(tokens)
    select = parser.select()
    if parser.tokens:
        raise RefusedError("MALFORMED_QUERY", f"unexpected token: '{parser.tokens[0]}'")
    return select


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.paths: list[str] = []

    def take(self, *wanted: str) -> str:
        if not self.tokens or (wanted and self.tokens[0].upper() not in wanted):
            raise RefusedError("MALFORMED_QUERY", f"expecting {' or '.join(wanted)}, found '{self.tokens[:1]}'")
        return self.tokens.pop(0)

    def took(self, *wanted: str) -> bool:
        is_there = bool(self.tokens) and self.tokens[0].upper() in wanted
        del self.tokens[:is_there]
        return is_there

    def listed(self, one: Callable[[], T], separator: str = ",") -> list[T]:
        found = [one()]
        while self.took(separator):
            found.append(one())
        return found

    def select(self) -> Select:
        self.take("SELECT")
        is_count = [token.upper() for token in self.tokens[:3]] == ["COUNT", "(", ")"]
        if is_count:
            del self.tokens[:3]
        fields = [] if is_count else self.listed(self.item)
        self.take("FROM")
        select = Select(fields, self.take(), is_count=is_count)
        if self.took("WHERE"):
            self.paths = select.paths
            select.where = self.either()
        if self.took("ORDER"):
            self.take("BY")
            select.order = self.listed(self.sorted)
        if self.took("LIMIT"):
            select.limit = int(self.take())
        return select

    def item(self) -> Any:
        if not self.took("("):
            return self.take()
        inner = self.select()
        self.take(")")
        return inner

    def sorted(self) -> tuple[str, bool]:
        path = self.take()
        is_falling = self.took("DESC")
        self.took("ASC")
        return path, is_falling

    def either(self) -> Holds:
        found = self.listed(self.both, "OR")
        return lambda get: any(one(get) for one in found)

    def both(self) -> Holds:
        found = self.listed(self.one, "AND")
        return lambda get: all(one(get) for one in found)

    def one(self) -> Holds:
        if self.took("NOT"):
            inner = self.one()
            return lambda get: not inner(get)
        if self.took("("):
            found = self.either()
            self.take(")")
            return found
        path, op = self.take(), self.take("=", "!=", "<", "<=", ">", ">=", "LIKE", "IN", "NOT", "INCLUDES", "EXCLUDES").upper()
        self.paths.append(path)
        is_not = op == "NOT"
        op = self.take("IN") if is_not else op
        wanted = self.values() if op in ("IN", "INCLUDES", "EXCLUDES") else self.value()
        return lambda get: _compare(get(path), op, wanted) != is_not

    def values(self) -> list[Any]:
        self.take("(")
        found = self.listed(self.value)
        self.take(")")
        return found

    def value(self) -> Any:
        token = self.take()
        if token.startswith("'"):
            return re.sub(r"\\(.)", lambda match: _UNESCAPE.get(match[1], match[1]), token[1:-1], flags=re.DOTALL)
        match token.lower():
            case "null":
                return None
            case "true" | "false":
                return token.lower() == "true"
            case _ if "T" in token[1:]:
                return datetime.fromisoformat(token)
            case _ if token[4:5] == "-":
                return token
            case _:
                return Decimal(token)


def _compare(found: Any, op: str, wanted: Any) -> bool:
    match op:
        case "=" | "!=":
            return bool(is_same(found, wanted)) == (op == "=")
        case "IN":
            return any(is_same(found, one) for one in wanted)
        case "LIKE":
            pattern = re.escape(wanted).replace("%", ".*").replace("_", ".")
            return found is not None and re.fullmatch(pattern, found, re.IGNORECASE | re.DOTALL) is not None
        case "INCLUDES" | "EXCLUDES":
            chosen = set((found or "").split(";"))
            return any(set(one.split(";")) <= chosen for one in wanted) == (op == "INCLUDES")
    if found is None or wanted is None:
        return False
    found, wanted = comparable(found), comparable(wanted)
    return {"<": found < wanted, "<=": found <= wanted, ">": found > wanted, ">=": found >= wanted}[op]


def is_same(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) and isinstance(wanted, str) and len(found) in (15, 18) and len(wanted) in (15, 18):
        return found[:15] == wanted[:15]
    if isinstance(found, str) and isinstance(wanted, str):
        return found.casefold() == wanted.casefold()
    return bool(found is wanted or (found is not None and comparable(found) == comparable(wanted)))


def comparable(value: Any) -> Any:
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return datetime.fromisoformat(value)
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
