"""Where a feed's rows come from if that is Salesforce: the words of `kind: salesforce`.

How Salesforce is asked is `connectors.sources`'s; who we are to it comes from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from mappings.measures import Duration, OneOrMany, Share, Texts, mistake
from mappings.refusals import did_you_mean
from mappings.soql import parse_query
from mappings.source_bases import AnySource
from mappings.strict import Strict

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")
_PATH = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}(?:\.[A-Za-z][A-Za-z0-9_]{0,79}){0,5}")

_Op = Literal["=", "!=", "<", "<=", ">", ">=", "like", "in", "not in", "includes", "excludes", "missing", "present"]
_OPS: tuple[str, ...] = get_args(_Op)
_OF_MANY = frozenset({"in", "not in", "includes", "excludes"})
_OF_NONE = frozenset({"missing", "present"})


def _api_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise mistake(f'"{text}" is not an API name', "write it as Salesforce's set-up shows it, like Event__c")
    return text


def _field_path(text: str) -> str:
    if not _PATH.fullmatch(text):
        hint = "write API names, like Name, Venue__r.City__c (of a parent) or BillingAddress.city (of an address)"
        raise mistake(f'"{text}" is not a field', hint)
    return text


def _soql(text: str) -> str:
    return parse_query(text).text


def _op(text: str) -> str:
    if text.lower() not in _OPS:
        raise mistake(f'"{text}" is not a comparison', did_you_mean(text.lower(), _OPS) or f"one of {', '.join(_OPS)}")
    return text.lower()


ApiName = Annotated[str, AfterValidator(_api_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
"""The API name of an object or a relationship."""
FieldPath = Annotated[str, AfterValidator(_field_path), WithJsonSchema({"type": "string", "pattern": f"^{_PATH.pattern}$"})]
"""The API name of a field, after those of the relationships that lead to it."""
FieldPaths = Annotated[tuple[FieldPath, ...], OneOrMany()]
Soql = Annotated[str, AfterValidator(_soql), WithJsonSchema({"type": "string", "minLength": 1})]
"""One SELECT."""
Op = Annotated[str, AfterValidator(_op), WithJsonSchema({"type": "string", "enum": list(_OPS)})]
"""How a field is compared."""


class FieldTest(Strict):
    """A record is read if each of these holds. Values are written as their field's type asks, and quoted for you.

    A date is `2026-05-03` or one of Salesforce's own, such as `TODAY` or `LAST_N_DAYS:30`; a moment has its offset,
    `2026-05-03T19:30:00+01:00`.
    """

    field: FieldPath = Field(description="The field's API name; `Venue__r.City__c` is one of the parent.")
    op: Op = Field(
        default="=",
        description="`=`, `!=`, `<`, `<=`, `>`, `>=`, `like`, `in`, `not in`; `includes` and `excludes` of a multi-select"
        " picklist; `missing` and `present` need no value.",
    )
    value: Texts = Field(default=(), description="What the field is compared with; a list for `in`, `includes` and the like.")

    @model_validator(mode="after")
    def _suits_op(self) -> Self:
        if self.op in _OF_NONE and self.value:
            raise mistake(f"{self.op} compares with nothing", "leave the value out")
        if self.op not in _OF_NONE and not self.value:
            raise mistake(f"{self.op} needs a value", "for empty fields write op: missing, or op: present")
        if self.op not in _OF_MANY | _OF_NONE and len(self.value) > 1:
            raise mistake(f"{self.op} compares with one value", "of several, write op: in")
        return self


class Incremental(Strict):
    """Read only what changed since the last read, deleted records among it.

    Changes that do not move the field `by` are seen by the next whole read: other values of formula fields and of parents,
    records that no longer pass `where`, and deleted ones that have left the recycle bin.
    """

    by: ApiName = Field(default="SystemModstamp", description="The field that tells when a record was last changed.")
    overlap: Duration = Field(
        default=timedelta(minutes=10), description="How far before the last read to begin, for changes that show late."
    )
    full_every: Duration = Field(default=timedelta(days=1), description="How often everything is read all the same.")

    @model_validator(mode="after")
    def _not_negative(self) -> Self:
        if self.overlap < timedelta():
            raise mistake("overlap says how far to go back", "write it without the minus")
        if self.full_every <= timedelta():
            raise mistake("full_every must be longer than nothing", 'write it like "1d"')
        return self


class SalesforceSource(AnySource):
    """Records of a Salesforce object; the columns are its fields by their API names, whatever their case.

    `Venue__r.City__c` is a field of a parent, `BillingAddress.city` a part of an address, `Sessions__r` the child rows named
    under `children`. Whether a record comes over one API or the other, its cells are the same: moments as
    `2026-05-03T17:30:00Z`, days as `2026-05-03`, times of day as `19:30:00`, ids with 18 characters, numbers as they are
    sent without a final `.0`, `true` and `false`; what is null is empty. A multi-select picklist is one text, `A;B`.
    """

    kind: Literal["salesforce"] = Field(description="salesforce: the records of an object in Salesforce.")
    object: ApiName | None = Field(default=None, description="The object's API name: Event__c.")
    fields: FieldPaths = Field(default=(), description="Fields to read besides those that the mapping uses.")
    where: Annotated[tuple[FieldTest, ...], OneOrMany()] = Field(
        default=(), description="Which records to read: those for which each `field`, `op`, `value` holds."
    )
    children: Mapping[ApiName, FieldPaths] = Field(
        default_factory=dict,
        description="Child rows, and their fields: `{Sessions__r: [Name, Start__c]}` gives a column of JSON, a list of objects.",
    )
    query: Soql | None = Field(default=None, description="Instead of all that: a query in SOQL, asked as it stands.")
    api: Literal["auto", "rest", "bulk"] = Field(
        default="auto", description="How to read: in pages, in bulk, or as their number suggests."
    )
    bulk_above: int = Field(default=10_000, ge=0, description="More records than that are read in bulk, if `api` is auto.")
    stop_at: Share = Field(
        default=0.95, description="The share of the org's daily requests, used by all programs, at which we stop and go on later."
    )
    incremental: Incremental | None = Field(default=None, description="Read only what changed: `by`, `overlap`, `full_every`.")

    @property
    def place(self) -> str:
        """The object, by its API name."""
        return self.object or parse_query(self.query or "").object

    @property
    def full_every(self) -> timedelta | None:
        """How often everything is read, if else only changes are."""
        return self.incremental.full_every if self.incremental else None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.object is None) == (self.query is None):
            raise mistake("a Salesforce source names an object or a query", 'write "object: Event__c", or a query instead')
        beside = [name for name in ("fields", "where", "children", "incremental") if name in self.model_fields_set]
        if self.query is not None and beside:
            raise mistake(f"{', '.join(beside)} cannot stand beside a query", "write them into the query, or name the object")
        has_children = bool(self.children) or (self.query is not None and not parse_query(self.query).is_plain)
        if self.api == "bulk" and has_children:
            raise mistake("child rows, groups and limits cannot be read in bulk", "write api: rest, or leave them out")
        return self
