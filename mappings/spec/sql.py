"""The words of `kind: sql`: the name of a table, a query that only reads."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from mappings.strict import Text, matching, mistake

_PART = r'(?:"[^"]+"|[^\s".;]+)'
TableName = Annotated[
    Text, matching(rf"{_PART}(?:\.{_PART})*", "the name of a table", 'write events, public.events or "My events"')
]
"""A table or view, after its schema if it has one; a part with odd letters in double quotes."""
_PARTS = re.compile(r'"([^"]+)"|([^".]+)')
_QUIET = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)
"""What is no word of SQL: a text, a quoted name, a comment."""
_READS = re.compile(r"[\s(]*(?:select|with|values|table|from)\b", re.IGNORECASE)


def _one_statement(text: str) -> str:
    found = text.strip("; \n\t\r")
    if ";" in _QUIET.sub("''", found):
        raise mistake("a query is one statement, a condition a part of one", "leave out what follows the semicolon")
    return found


def _reading(text: str) -> str:
    if not _READS.match(_QUIET.sub("", text)):
        raise mistake("a query only reads", "begin it with select or with")
    return text


Query = Annotated[str, AfterValidator(_one_statement), AfterValidator(_reading)]
"""One statement that reads."""
Condition = Annotated[str, AfterValidator(_one_statement)]
"""What follows `where` in a statement."""


def table_parts(name: str) -> tuple[str, str | None]:
    """Return the name of a table and its schema, None if it has none; both without quotes."""
    *schema, table = (quoted or plain for quoted, plain in _PARTS.findall(name))
    return table, ".".join(schema) or None
