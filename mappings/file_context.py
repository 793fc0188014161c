"""What the models of a mapping file must know beyond the key at hand: the named values and the lookup files of that file.

The loader fills it in; the models only ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from mappings.lookup_table import Table, TableError
from mappings.measures import Text, mistake
from mappings.refusals import did_you_mean


@dataclass(slots=True)
class FileContext:
    """`names`: the keys of `let`. `open_table` returns a lookup file by its name in the feed, or raises TableError."""

    names: frozenset[str]
    open_table: Callable[[str], Table]
    tables: dict[str, Table] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        """Return a lookup file, read once."""
        if name not in self.tables:
            self.tables[name] = self.open_table(name)
        return self.tables[name]


def table_of(name: str, info: ValidationInfo) -> Table | None:
    """Return the lookup file that a model names, or None where no file is being loaded."""
    if not isinstance(info.context, FileContext):
        return None
    try:
        return info.context.table(name)
    except TableError as error:
        raise mistake(str(error)) from error


def _check_table(name: str, info: ValidationInfo) -> str:
    table_of(name, info)
    return name


def _check_reference(text: str, info: ValidationInfo) -> str:
    name = text[1:]
    if not text.startswith("$") or name.startswith("$") or not isinstance(info.context, FileContext):
        return text
    if name not in info.context.names:
        near = did_you_mean(name, info.context.names).replace('"', '"$', 1)
        raise mistake(f'unknown name "{text}"', near or "define it under let")
    return text


TableFile = Annotated[Text, AfterValidator(_check_table)]
"""The name of a lookup file: beside the feed file, or in the folder `lookups` next to the feed's folder."""
Referring = Annotated[Text, AfterValidator(_check_reference)]
"""A text that means the named value `name` if it reads `$name`; `$$` at its beginning is a plain `$`."""
