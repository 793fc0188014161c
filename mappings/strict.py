"""What all models of a mapping file share: their closed base, tagged unions, and what to do about an unusable value."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from mappings.measures import Text
from mappings.positions import Block


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
