"""What can be told of a SOQL query by reading it: that it only reads, and what its rows will look like.

How one is built from a mapping's words, and what Salesforce says to it, is `connectors.sources`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mappings.measures import mistake

_TOKEN = re.compile(r"\s*+('(?:[^'\\]|\\.)*+'|[(),]|[^\s'(),]++)", re.DOTALL)
_SAME_NAME = frozenset({"tolabel", "format", "convertcurrency"})
_HINT = "write one query, like \"SELECT Id, Name FROM Event__c WHERE Status__c = 'Public'\""
_MARKS = "SELECT ... FOR VIEW, FOR REFERENCE or FOR UPDATE leaves marks or locks on records; reading leaves none"


@dataclass(frozen=True, slots=True)
class Query:
    """A query as its author wrote it.

    `object`: what it reads; `columns`: the names that each row will have, in its order; `children`: those of them that
    are child rows. `is_plain`: one row for each record, as many as there are, so that the rows can be counted and read in
    any way; else it groups, limits, nests or computes.
    """

    text: str
    object: str
    columns: tuple[str, ...]
    children: tuple[str, ...]
    is_plain: bool
    _rest: str

    @property
    def counting(self) -> str:
        """The query that counts the rows of a plain one."""
        return f"SELECT COUNT() {self._rest}"


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int
    depth: int

    @property
    def word(self) -> str:
        return self.text.upper()


def parse_query(text: str) -> Query:
    """Read a query.

    Raises:
        PydanticCustomError: it is not one query that reads, or one whose columns cannot be told.
    """
    text = text.strip()
    tokens = tuple(_tokens(text))
    source = _checked(tokens)
    items = list(_items(tokens[1:source]))
    words = [token.word for token in tokens[source:] if not token.depth]
    alias = _alias(tokens[source + 2 :])
    columns = tuple(_columns(items, alias))
    children = tuple(column for column, item in zip(columns, items, strict=True) if item[0].text == "(")
    if len(set(map(str.casefold, columns))) < len(columns):
        raise mistake("two columns of the query have one name", "give one of them an alias, or leave it out")
    has_function = any(token.text == "(" for item in items for token in item)
    is_plain = not has_function and not {"GROUP", "LIMIT", "OFFSET", "HAVING", "ALL"}.intersection(words)
    end = next((token.start for token in tokens[source:] if not token.depth and token.word == "ORDER"), len(text))
    return Query(text, tokens[source + 1].text, columns, children, is_plain, text[tokens[source].start : end].rstrip())


def _tokens(text: str) -> Iterator[_Token]:
    depth = place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise mistake(f'a quote of the query is never closed: "{text[place : place + 40].strip()}"', _HINT)
        depth -= match[1] == ")"
        if depth < 0:
            raise mistake('the query closes a parenthesis, ")", that was never opened', _HINT)
        yield _Token(match[1], match.start(1), depth)
        depth += match[1] == "("
        place = match.end()
    if depth:
        raise mistake('the query opens a parenthesis, "(", that is never closed', _HINT)


def _checked(tokens: Sequence[_Token]) -> int:
    """Return where FROM stands in a query that only reads."""
    top = [(position, token.word) for position, token in enumerate(tokens) if not token.depth]
    words = [word for _, word in top]
    if not words or words[0] != "SELECT" or words.count("SELECT") > 1 or any(";" in word for word in words if word[0] != "'"):
        raise mistake("only a query that reads can be asked: one SELECT, with nothing before and nothing after it", _HINT)
    source = next((position for position, word in top if word == "FROM"), 0)
    if source < 2 or len(tokens) <= source + 1 or not tokens[source + 1].text[0].isalpha():
        raise mistake("the query lacks its columns, or FROM and the object that it reads", _HINT)
    if "FOR" in words[words.index("FROM") + 2 :]:
        raise mistake(_MARKS, "leave the FOR clause out")
    return source


def _alias(after: Sequence[_Token]) -> str:
    """Return what the query calls its object for short: `FROM Account a`."""
    clauses = {"WHERE", "USING", "WITH", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "ALL"}
    if after and after[0].text == ",":
        raise mistake("a query of several objects cannot be read", "ask for the parents by their way: Account.Name")
    return after[0].text if after and after[0].word not in clauses else ""


def _items(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    item: list[_Token] = []
    for token in tokens:
        if token.text == "," and not token.depth:
            yield _filled(item)
            item = []
        else:
            item.append(token)
    yield _filled(item)


def _filled(item: list[_Token]) -> Sequence[_Token]:
    if not item:
        raise mistake("a column of the query is missing between two commas", _HINT)
    return item


def _columns(items: Sequence[Sequence[_Token]], alias: str) -> Iterator[str]:
    unnamed = 0
    for item in items:
        words = [token.text for token in item]
        match [word.lower() for word in words]:
            case ["(", *_]:
                yield _child(words)
            case ["typeof", *_] | ["fields", "(", *_]:
                raise mistake(f"the columns of {words[0].upper()} cannot be told before it is asked", "write the fields out")
            case [function, "(", *_, ")"] if function in _SAME_NAME:
                yield _without(words[-2], alias)
            case [_, "(", *_, ")"]:
                yield f"expr{unnamed}"
                unnamed += 1
            case [_, "(", *_, _]:
                yield words[-1]
            case [_] | [_, _]:
                yield _without(words[0], alias) if len(words) == 1 else words[1]
            case _:
                raise mistake(f'"{" ".join(words)}" is not a column of a query', _HINT)


def _child(words: Sequence[str]) -> str:
    place = next((place for place, word in enumerate(words) if word.upper() == "FROM"), 0)
    if not place or place + 2 > len(words) - 1:
        raise mistake("a query inside the query lacks FROM and the child rows' name", '"(SELECT Name FROM Sessions__r)"')
    return words[place + 1].rpartition(".")[2]


def _without(name: str, alias: str) -> str:
    return name.removeprefix(f"{alias}.") if alias else name
