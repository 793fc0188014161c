"""What all models of a mapping file share: their closed base, tagged unions, and what to do about an unusable value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, model_validator

from mappings.lookup_table import Table, TableError
from mappings.measures import Text, mistake
from mappings.positions import Block
from mappings.refusals import did_you_mean


class Strict(BaseModel):
    """Frozen, and closed: a key that the model does not name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _tell_block(cls, value: object) -> object:
        """Leave the names this model knows on a block of a file, for "did you mean"."""
        if isinstance(value, Block):
            value.allowed = tuple(known.alias or name for name, known in cls.model_fields.items())
        return value


def union_members(union: Any) -> dict[str, Any]:
    """Return the members of a tagged union by what follows the colon of their tags, in their order."""
    members = ((get_args(member)[0], tag) for member in get_args(get_args(union)[0]) for tag in get_args(member)[1:])
    return {tag.tag.partition(":")[2]: model for model, tag in members if isinstance(tag, Tag)}


Word = Literal["reject", "omit", "warn", "draft"]


class UsePolicy(Strict):
    """Put a fixed value in its place; `warn` also counts and shows the row, `draft` also sends it for review."""

    use: Text | tuple[Text, ...] = Field(description="The text, or list of texts, to use instead.")
    warn: bool = Field(default=False, description="Count and show the rows where this happens.")
    draft: bool = Field(default=False, description="Send such rows as drafts, for review.")


def _tag_of_policy(value: object) -> str:
    return "policy:use" if isinstance(value, dict | UsePolicy) else "policy:word"


MissWord = Literal["reject", "omit", "warn", "draft", "keep"]
_CHOICES = (
    "reject: the row is rejected with the reason; omit: the value is left out; warn: left out, counted and shown; draft: left out"
    " and the event sent as a draft; {use: X}: X stands in."
)
Policy = Annotated[
    Annotated[Word, Tag("policy:word")] | Annotated[UsePolicy, Tag("policy:use")],
    Discriminator(_tag_of_policy),
    Field(description=_CHOICES),
]
"""reject (default), omit, warn, draft, or a value to use instead."""
MissPolicy = Annotated[
    Annotated[MissWord, Tag("policy:word")] | Annotated[UsePolicy, Tag("policy:use")],
    Discriminator(_tag_of_policy),
    Field(description=f"{_CHOICES} keep: the value itself stays."),
]
"""The same, or keep: a value that a list does not know stays as it is."""


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
