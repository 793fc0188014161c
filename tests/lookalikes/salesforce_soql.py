"""As much of SOQL as the look-alike of Salesforce needs to answer honestly: fields, child rows, conditions, order, COUNT().

What the records are is `salesforce_org`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

Record = dict[str, Any]
Get = Callable[[Record, str], Any]

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
    fields: list[Any]
    source: str
    where: Any = None
    order: list[tuple[str, bool]] = field(default_factory=list)
    limit: int | None = None
    is_count: bool = False


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

    def word(self) -> str:
        return self.tokens[0].upper() if self.tokens else ""

    def take(self, *wanted: str) -> str:
        if not self.tokens or (wanted and self.word() not in wanted):
            raise RefusedError("MALFORMED_QUERY", f"expecting {' or '.join(wanted)}, found '{self.tokens[:1]}'")
        return self.tokens.pop(0)

    def took(self, *wanted: str) -> bool:
        if self.word() in wanted:
            self.tokens.pop(0)
            return True
        return False

    def select(self) -> Select:
        self.take("SELECT")
        fields: list[Any] = []
        is_count = self.word() == "COUNT" and self.tokens[1:3] == ["(", ")"]
        if is_count:
            del self.tokens[:3]
        else:
            fields.append(self.item())
            while self.took(","):
                fields.append(self.item())
        self.take("FROM")
        select = Select(fields, self.take(), is_count=is_count)
        if self.took("WHERE"):
            select.where = self.either()
        if self.took("ORDER"):
            self.take("BY")
            select.order.append(self.sorted())
            while self.took(","):
                select.order.append(self.sorted())
        if self.took("LIMIT"):
            select.limit = int(self.take())
        return select

    def item(self) -> Any:
        if self.took("("):
            inner = self.select()
            self.take(")")
            return inner
        return self.take()

    def sorted(self) -> tuple[str, bool]:
        path = self.take()
        is_falling = self.took("DESC")
        self.took("ASC")
        return path, is_falling

    def either(self) -> Any:
        found = self.both()
        while self.took("OR"):
            found = ("or", found, self.both())
        return found

    def both(self) -> Any:
        found = self.one()
        while self.took("AND"):
            found = ("and", found, self.one())
        return found

    def one(self) -> Any:
        if self.took("NOT"):
            return ("not", self.one())
        if self.took("("):
            found = self.either()
            self.take(")")
            return found
        path, op = self.take(), self.take("=", "!=", "<", "<=", ">", ">=", "LIKE", "IN", "NOT", "INCLUDES", "EXCLUDES").upper()
        if op == "NOT":
            self.take("IN")
            return ("not", ("test", path, "IN", self.values()))
        return ("test", path, op, self.values() if op in ("IN", "INCLUDES", "EXCLUDES") else self.value())

    def values(self) -> list[Any]:
        self.take("(")
        found = [self.value()]
        while self.took(","):
            found.append(self.value())
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


def paths_of(tree: Any) -> Iterator[str]:
    match tree:
        case ("test", path, *_):
            yield path
        case (_, *inner):
            for one in inner:
                yield from paths_of(one)


def holds(tree: Any, get: Callable[[str], Any]) -> bool:
    match tree:
        case None:
            return True
        case ("and", left, right):
            return holds(left, get) and holds(right, get)
        case ("or", left, right):
            return holds(left, get) or holds(right, get)
        case ("not", inner):
            return not holds(inner, get)
        case ("test", path, op, wanted):
            return _compare(get(path), op, wanted)
    raise AssertionError(tree)


def _compare(found: Any, op: str, wanted: Any) -> bool:
    match op:
        case "=" | "!=":
            return bool(_same(found, wanted)) == (op == "=")
        case "IN":
            return any(_same(found, one) for one in wanted)
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


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) and isinstance(wanted, str) and len(found) in (15, 18) and len(wanted) in (15, 18):
        return found[:15] == wanted[:15]
    if isinstance(found, str) and isinstance(wanted, str):
        return found.casefold() == wanted.casefold()
    return bool(found is wanted or (found is not None and comparable(found) == comparable(wanted)))


def comparable(value: Any) -> Any:
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return datetime.fromisoformat(value)
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
