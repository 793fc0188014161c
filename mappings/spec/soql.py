"""Salesforce queries (SOQL), parsed far enough to check that they only read and which columns they give; and field tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import AfterValidator, WithJsonSchema

from mappings.reasons import did_you_mean
from mappings.spec.source_words import ChangedRows
from mappings.strict import OneOrMany, Strict, Texts, matching, mistake

_TOKEN = re.compile(r"\s*+('(?:[^'\\]|\\.)*+'|[(),]|[^\s'(),]++)", re.DOTALL)
_SAME_NAME = frozenset({"tolabel", "format", "convertcurrency"})
"""Functions whose column is named after the field inside."""
_HINT = "write one query, like \"SELECT Id, Name FROM Event__c WHERE Status__c = 'Public'\""
_MARKS = "SELECT ... FOR VIEW, FOR REFERENCE or FOR UPDATE marks or locks records, and eventsync only reads"


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query.

    `object`: the object that it reads. `columns`: the names of the columns in order; `children`: those with child rows.
    `is_plain`: one row for each record, so that rows can be counted and read in bulk; otherwise the query groups, limits, nests
    or computes.
    """

    text: str
    object: str
    columns: tuple[str, ...]
    children: tuple[str, ...]
    is_plain: bool
    counting: str
    """The query that counts the rows of a plain query."""


class _Token(NamedTuple):
    """A part of a query, also in capitals; its position, and its depth of parentheses."""

    text: str
    word: str
    start: int
    depth: int


def parse_query(text: str) -> Query:
    """Parse a query.

    Raises:
        PydanticCustomError: it is not a single SELECT, or its columns are not known before it runs.
    """
    text = text.strip()
    tokens = tuple(_tokens(text))
    top = [(position, token.word) for position, token in enumerate(tokens) if not token.depth]
    words = [word for _, word in top]
    if not words or words[0] != "SELECT" or words.count("SELECT") > 1 or any(";" in word for word in words if word[0] != "'"):
        raise mistake("only one SELECT is allowed, with nothing before or after it", _HINT)
    source = next((position for position, word in top if word == "FROM"), 0)
    if source < 2 or len(tokens) <= source + 1 or not tokens[source + 1].text[0].isalpha():
        raise mistake("the query lacks its columns, or FROM and the object that it reads", _HINT)
    if "FOR" in words[words.index("FROM") + 2 :]:
        raise mistake(_MARKS, "leave the FOR clause out")
    items = [list(part) for is_comma, part in groupby(tokens[1:source], _parts_columns) if not is_comma]
    if len(items) <= sum(map(_parts_columns, tokens[1:source])):
        raise mistake("a column of the query is missing between two commas", _HINT)
    words = [token.word for token in tokens[source:] if not token.depth]
    columns = tuple(_columns(items, _prefix(tokens[source + 2 :])))
    children = tuple(column for column, item in zip(columns, items, strict=True) if item[0].text == "(")
    if len(set(map(str.casefold, columns))) < len(columns):
        raise mistake("two columns of the query have one name", "give one of them an alias, or leave it out")
    has_function = any(token.text == "(" for item in items for token in item)
    is_plain = not has_function and not {"GROUP", "LIMIT", "OFFSET", "HAVING", "ALL"}.intersection(words)
    end = next((token.start for token in tokens[source:] if not token.depth and token.word == "ORDER"), len(text))
    counting = f"SELECT COUNT() {text[tokens[source].start : end].rstrip()}"
    return Query(text, tokens[source + 1].text, columns, children, is_plain, counting)


def _tokens(text: str) -> Iterator[_Token]:
    depth = place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise mistake(f'a quote of the query is never closed: "{text[place : place + 40].strip()}"', _HINT)
        depth -= match[1] == ")"
        if depth < 0:
            raise mistake('the query closes a parenthesis, ")", that was never opened', _HINT)
        yield _Token(match[1], match[1].upper(), match.start(1), depth)
        depth += match[1] == "("
        place = match.end()
    if depth:
        raise mistake('the query opens a parenthesis, "(", that is never closed', _HINT)


def _prefix(after: Sequence[_Token]) -> str:
    """Return the alias of the query's object with its dot, "" if it has none: `FROM Account a`."""
    clauses = {"WHERE", "USING", "WITH", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "ALL"}
    if after and after[0].text == ",":
        raise mistake("a query of several objects cannot be read", "name the fields of parents by their path: Account.Name")
    return f"{after[0].text}." if after and after[0].word not in clauses else ""


def _parts_columns(token: _Token) -> bool:
    return token.text == "," and not token.depth


def _columns(items: Sequence[Sequence[_Token]], prefix: str) -> Iterator[str]:
    unnamed = 0
    for item in items:
        words = [token.text for token in item]
        match [word.lower() for word in words]:
            case ["(", *_]:
                yield _child(words)
            case ["typeof", *_] | ["fields", "(", *_]:
                raise mistake(f"the columns of {words[0].upper()} are not known before it runs", "write the fields out")
            case [function, "(", *_, ")"] if function in _SAME_NAME:
                yield words[-2].removeprefix(prefix)
            case [_, "(", *_, ")"]:
                yield f"expr{unnamed}"
                unnamed += 1
            case [_, "(", *_, _]:
                yield words[-1]
            case [_] | [_, _]:
                yield words[1] if len(words) > 1 else words[0].removeprefix(prefix)
            case _:
                raise mistake(f'"{" ".join(words)}" is not a column of a query', _HINT)


def _child(words: Sequence[str]) -> str:
    place = next((place for place, word in enumerate(words) if word.upper() == "FROM"), 0)
    if not place or place + 2 > len(words) - 1:
        raise mistake("a query inside the query lacks FROM and the child rows' name", '"(SELECT Name FROM Sessions__r)"')
    return words[place + 1].rpartition(".")[2]


_NAME = r"[A-Za-z][A-Za-z0-9_]{0,79}"
_PATH = rf"{_NAME}(?:\.{_NAME}){{0,5}}"
_Op = Literal["=", "!=", "<", "<=", ">", ">=", "like", "in", "not in", "includes", "excludes", "missing", "present"]
_OPS: tuple[str, ...] = get_args(_Op)
_OF_MANY = frozenset({"in", "not in", "includes", "excludes"})
_OF_NONE = frozenset({"missing", "present"})


def _soql(text: str) -> str:
    return parse_query(text).text


def _op(text: str) -> str:
    if text.lower() not in _OPS:
        raise mistake(f'"{text}" is not a comparison', did_you_mean(text.lower(), _OPS) or f"one of {', '.join(_OPS)}")
    return text.lower()


ApiName = Annotated[
    str,
    matching(_NAME, "an API name", "write it as Salesforce's set-up shows it, like Event__c"),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$"}),
]
"""The API name of an object or a relationship."""
FieldPath = Annotated[
    str,
    matching(_PATH, "a field", "write API names, like Name, or Venue__r.City__c of a parent"),
    WithJsonSchema({"type": "string", "pattern": f"^{_PATH}$"}),
]
"""The API name of a field, with those of the relationships that lead to it."""
FieldPaths = Annotated[tuple[FieldPath, ...], OneOrMany()]
Soql = Annotated[str, AfterValidator(_soql), WithJsonSchema({"type": "string", "minLength": 1})]
Op = Annotated[str, AfterValidator(_op), WithJsonSchema({"type": "string", "enum": list(_OPS)})]


class FieldTest(Strict):
    """A test of a record's field; only records that pass all tests are read. Write values in the format of the field's type,
    without quotes.

    A date is `2026-05-03` or one of Salesforce's own, such as `TODAY` or `LAST_N_DAYS:30`; a moment has its offset,
    `2026-05-03T19:30:00+01:00`.
    """

    field: FieldPath
    """The field's API name; `Venue__r.City__c` is a field of the parent."""
    op: Op = "="
    """`=`, `!=`, `<`, `<=`, `>`, `>=`, `like`, `in`, `not in`; `includes` and `excludes` for multi-select picklists; `missing`
    and `present` need no value.
    """
    value: Texts = ()
    """The value to compare with; a list for `in`, `includes` and the like."""

    def check(self) -> None:
        if self.op in _OF_NONE and self.value:
            raise mistake(f"{self.op} compares with nothing", "leave the value out")
        if self.op not in _OF_NONE and not self.value:
            raise mistake(f"{self.op} needs a value", "for empty fields write op: missing, or op: present")
        if self.op not in _OF_MANY | _OF_NONE and len(self.value) > 1:
            raise mistake(f"{self.op} compares with one value", "for several values write op: in")


class Incremental(ChangedRows):
    """Read only what changed since the last read, including deleted records.

    Changes that do not update the field `by` are found by the next full read: other values of formula fields and parents,
    records that no longer pass `where`, and deleted ones that have left the recycle bin.
    """

    by: ApiName = "SystemModstamp"
    """The field with the time of a record's last change."""
