"""The mapping file as types: one file is one feed. Reading it from YAML is `loader`'s, carrying it out `engine`'s."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, Discriminator, Field, PrivateAttr, Tag, WithJsonSchema, model_validator

from mappings.errors import FileProblem
from mappings.lookup_table import Table
from mappings.measures import OneOrMany, Text, Texts, mistake
from mappings.publishing import PublishPolicy, Schedule
from mappings.refusals import ReasonCode
from mappings.row_key import FeedName
from mappings.rules import Rule
from mappings.source_specs import SourceSpec
from mappings.steps.catalogue import AnyStep
from mappings.strict import Strict
from mappings.values import Fields, Value


class KeyColumn(Strict):
    """A column of the key: its bare name, or a block where it may be empty."""

    column: Text = Field(min_length=1, description="The column's name.")
    optional: bool = Field(default=False, description="An empty cell is a part of the key like any other.")


FeedText = Annotated[FeedName, Field(pattern=r"^[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*$", max_length=64)]
"""A feed's name, as a mapping file may spell it."""


def _kind_of_key(value: object) -> str:
    return "key:column" if isinstance(value, dict | KeyColumn) else "key:text"


WayName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
KeyName = Annotated[Text, Field(min_length=1)]
KeyPart = Annotated[Annotated[KeyName, Tag("key:text")] | Annotated[KeyColumn, Tag("key:column")], Discriminator(_kind_of_key)]


def _list_version(text: str) -> str:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise mistake(f'"{text}" is not the version of a list', 'it is a date as the service writes it, such as "2026-04-01"')
    return text


def _payload_path(text: str) -> str:
    if not all(text.split(".")) or "[" in text:
        raise mistake(
            f'"{text}" is not a field of the event', "write it like description, or offers.price for a field of all offers"
        )
    return text


PayloadPath = Annotated[str, AfterValidator(_payload_path)]
ListVersion = Annotated[str, AfterValidator(_list_version), WithJsonSchema({"type": "string", "examples": ["2026-04-01"]})]


class Example(Strict):
    """A row and what must become of it: an event or several (the fields named must be so), a rejection, or a labelled skip."""

    row: dict[str, Text] = Field(default_factory=dict, description="The cells of the row; columns not named are empty.")
    rows: tuple[dict[str, Text], ...] = Field(
        default=(), description="In place of `row` several rows, where the feed puts rows of one key together."
    )
    event: dict[str, object] | None = Field(default=None, description="Fields of the payload and what they must be.")
    events: tuple[dict[str, object], ...] | None = Field(
        default=None, description="The same for each event of a row that stands for several: all of them, in their order."
    )
    rejected: dict[str, ReasonCode] | None = Field(
        default=None, description='The rejected fields and their codes; "" is the row itself.'
    )
    skipped: Text | None = Field(default=None, description="The label of the rule that leaves the row out.")
    as_of: AwareDatetime | None = Field(default=None, description="The moment of the run, where a window is meant.")

    @model_validator(mode="after")
    def _check_outcome(self) -> Self:
        if len({"row", "rows"} & self.model_fields_set) != 1:
            raise mistake("an example has a row, or several", "write one of row, rows")
        if sum(outcome is not None for outcome in (self.event, self.events, self.rejected, self.skipped)) != 1:
            raise mistake("an example has one outcome", "write one of event, events, rejected, skipped")
        return self


class FeedMapping(Strict):
    """One feed: where its rows come from, what identifies a row, how a row becomes an event, and how it is published."""

    feed: FeedText = Field(description="The feed's name, for life: part of every idempotency key.")
    owner: Text = Field(default="", description="Who is told when something needs attention.")
    notify: Texts = Field(
        default=(), description="The channels that are told as well, by the names that the environment gives their addresses."
    )
    source: SourceSpec = Field(description="Where the rows come from.")
    schedule: Schedule | None = Field(default=None, description="When the feed runs by itself (default: only when asked).")
    key: Annotated[tuple[KeyPart, ...], OneOrMany()] = Field(
        min_length=1, description="The columns that identify a row, for life."
    )
    let: dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], Value] = Field(
        default_factory=dict, description="Named values, used elsewhere as $name."
    )
    steps: dict[WayName, Annotated[tuple[AnyStep, ...], OneOrMany()]] = Field(
        default_factory=dict, description="Named ways of steps, used in any `do` as {use: NAME}."
    )
    include: Texts = Field(
        default=(),
        description="Files whose `let` and `steps` are used as if they stood here, by their paths from this file; one whose name"
        " begins with _ may stand among the feeds.",
    )
    rows: tuple[Rule, ...] = Field(
        default=(), description="Which rows are wanted, and what they stand for: rules, applied in their order."
    )
    classifications_version: ListVersion | None = Field(
        default=None,
        description="The version of the service's classifications that the mapping was written for; `check --live` tells what"
        " has changed since.",
    )
    event: Fields = Field(description="The payload: each field of the event, and where its value comes from.")
    extra: Annotated[tuple[PayloadPath, ...], OneOrMany()] = Field(
        default=(),
        description="Fields of the event that the service takes although its page does not spell them out, with all inside"
        " them: description, offers.price. Any other unknown field is a mistake.",
    )
    publish: PublishPolicy = Field(default=PublishPolicy(), description="What to do about changes, and when to stop.")
    examples: tuple[Example, ...] = Field(default=(), description="Rows and what must become of them, run by the command check.")

    _path: Path = PrivateAttr(default=Path("feed.yaml"))
    _digest: bytes = PrivateAttr(default=bytes(16))
    _tables: Mapping[str, Table] = PrivateAttr(default_factory=dict)
    _warnings: tuple[FileProblem, ...] = PrivateAttr(default=())

    @property
    def path(self) -> Path:
        """The file it was read from."""
        return self._path

    @property
    def digest(self) -> bytes:
        """16 bytes that change whenever what a row becomes may change: the file's content and its lookup tables."""
        return self._digest

    @property
    def tables(self) -> Mapping[str, Table]:
        """The lookup files it names, by name."""
        return self._tables

    @property
    def warnings(self) -> tuple[FileProblem, ...]:
        """What is allowed and still unwise, for the command check."""
        return self._warnings

    @property
    def key_columns(self) -> tuple[KeyColumn, ...]:
        """The columns of the key, in order."""
        return tuple(part if isinstance(part, KeyColumn) else KeyColumn(column=part) for part in self.key)

    def loaded(
        self, path: Path, digest: bytes, tables: Mapping[str, Table], warnings: tuple[FileProblem, ...] = ()
    ) -> FeedMapping:
        """Return the same mapping with what the loader knows about its file."""
        mapping = self.model_copy()
        mapping.__pydantic_private__ = {"_path": path, "_digest": digest, "_tables": tables, "_warnings": warnings}
        return mapping
