"""A closed choice among the models of a mapping file, of which only those are built that a file uses.

Which members there are to choose from stands where each union is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Discriminator, GetCoreSchemaHandler, GetJsonSchemaHandler, Tag, TypeAdapter, ValidationInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema


class OneOf:
    """Beside a union of tagged types, in place of pydantic's `Discriminator`: the same values, errors and JSON Schema.

    Pydantic's builds every member wherever the union is named, which takes longer than a small run. Here the union is one
    opaque type to whatever holds it, and a member is built when a value first means it. `tag_of` says which one that is: the
    member's tag, or a word of which the author is told that there is no such thing.
    """

    def __init__(self, tag_of: Callable[[object], str]) -> None:
        self._tag_of = tag_of
        self._members: dict[str, Any] = {}
        self._built: dict[str, TypeAdapter[Any]] = {}
        self._is_being_shown = False

    def __get_pydantic_core_schema__(self, source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        """Leave the members unbuilt."""
        self._members = {_tag_of_member(member): member for member in get_args(source)}
        return core_schema.with_info_plain_validator_function(self._validated)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        """Show all members; where the union is met again within one of them, by their names."""
        is_within, self._is_being_shown = self._is_being_shown, True
        try:
            choices = {tag: _shown(member, is_within=is_within) for tag, member in self._members.items()}
            return handler(core_schema.tagged_union_schema(choices, self._tag_of))
        finally:
            self._is_being_shown = is_within

    def _validated(self, value: object, info: ValidationInfo) -> object:
        tag = self._tag_of(value)
        if tag not in self._members:
            told = {"discriminator": self._tag_of.__name__, "tag": tag, "expected_tags": ", ".join(self._members)}
            raise PydanticKnownError("union_tag_invalid", told)
        if tag not in self._built:
            member: Any = Annotated[self._members[tag], Discriminator(self._tag_of)]
            self._built[tag] = TypeAdapter(member)
        return self._built[tag].validator.validate_python(value, context=info.context)


def _tag_of_member(member: Any) -> str:
    return next(str(mark.tag) for mark in member.__metadata__ if isinstance(mark, Tag))


def _shown(member: Any, *, is_within: bool) -> CoreSchema:
    model = get_args(member)[0]
    schema = TypeAdapter(member).core_schema
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return schema
    name = f"{model.__module__}.{model.__qualname__}:{id(model)}"  # as pydantic itself calls it
    return core_schema.definition_reference_schema(name) if is_within else _named(name, schema)


def _named(name: str, schema: Any) -> CoreSchema:
    """Return a model's schema under its name, which pydantic leaves out where it sees nothing refer to it."""
    match schema["type"]:
        case "definitions":
            return core_schema.definitions_schema(_named(name, schema["schema"]), schema["definitions"])
        case "definition-ref":
            return core_schema.definition_reference_schema(schema["schema_ref"])
        case _:
            named: CoreSchema = {**schema, "ref": name}
            return named
