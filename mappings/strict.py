"""Parts that all models of a mapping file share: the closed base model, unions, policies, lookup files, and typed scalars.

Every scalar of a file arrives as text; these types convert it, or explain what to write instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from mappings.lookup_table import Table, TableError
from mappings.patterns import PatternError, compile_pattern
from mappings.positions import Block
from mappings.reasons import did_you_mean
from mappings.zones import find_zone, zone_hint

_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+){unit[0]})?" for unit in ("weeks", "days", "hours", "minutes", "seconds")))


def mistake(message: str, hint: str = "") -> PydanticCustomError:
    """Return a pydantic error for a mistake of the file's author; lone surrogates in its texts become `?`."""
    shown, help_ = (text.encode("utf-8", "replace").decode() for text in (message, hint))
    return PydanticCustomError("mistake", "{message}", {"message": shown, "hint": help_})


def matching(pattern: str, what: str, hint: str) -> AfterValidator:
    """Return a validator that refuses a text which does not match the whole pattern: '"text" is not `what`', with the hint."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise mistake(f'"{text}" is not {what}', hint)
        return text

    return AfterValidator(check)


def written(number: float) -> str:
    """Format a number for people: three significant digits, thousands separated, no exponent."""
    if not math.isfinite(number):
        return "unknown"
    text = f"{number:,.0f}" if abs(number) >= 100 else f"{number or 0:.3g}"
    return "nearly 0" if "e" in text else text


def written_rate(per_s: float) -> str:
    """Format a rate per second, minute or hour, in the first unit with a number of at least one."""
    for length_s, unit in ((1, "s"), (60, "min")):
        if per_s * length_s >= 1:
            return f"{written(per_s * length_s)}/{unit}"
    return f"{written(per_s * 3600)}/h"


def parse_duration(value: object) -> timedelta:
    """Parse `90d`, `15m`, `1h30m`, `45s`, `2w`; a leading `-` makes it negative."""
    if isinstance(value, timedelta):
        return value
    text = str(value).strip().replace(" ", "")
    match = _DURATION.fullmatch(text.removeprefix("-"))
    parts = match.groupdict("") if match else {}
    try:
        length = timedelta(**{unit: int(part) for unit, part in parts.items() if part})
    except (OverflowError, ValueError):
        parts = {}
    if not any(parts.values()):
        raise mistake(f'"{value}" is not a duration', 'write it like "90d", "15m" or "1h30m"')
    return -length if text.startswith("-") else length


def parse_share(value: object) -> float | None:
    """Parse `5%` or `0.05` to 0.05, `off` to None."""
    if value is None or isinstance(value, float):
        return value
    text = str(value).strip()
    if text == "off":
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if share > 1 and not text.endswith("%"):
        raise mistake(f'"{value}" is more than 100%', f'write "{text}%" if that is meant')
    if not 0 <= share <= 100:
        raise mistake(f'"{value}" is not a share', 'write it like "5%", or "off"')
    return share


def parse_pattern(text: str) -> str:
    """Check a regular expression, and return it."""
    try:
        compile_pattern(text)
    except PatternError as error:
        raise mistake(f'"{text}" {error}', error.hint) from None
    return text


def parse_zone(name: str) -> str:
    """Check an IANA zone name, and return it; bare offsets and abbreviations are refused."""
    if find_zone(name) is None:
        raise mistake(f'"{name}" is not a time zone', zone_hint(name))
    return name


class OneOrMany:
    """Annotation of a tuple type: a single item may be written without a list."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Wrap a single item in a list before validation."""
        return core_schema.no_info_before_validator_function(_one_or_many, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        """Return a JSON Schema that allows both forms."""
        many = handler(schema)
        return {"anyOf": [many.get("items", {}), many]}


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, str | dict) else value


def _switched_on(value: object) -> bool:
    if value in ("", "true", True):
        return True
    got = f'"{value}"' if isinstance(value, str) else "a block"
    raise mistake(
        f"this step takes no parameter, and got {got}",
        "write its bare name, or true beside other keys: {lower: true, locale: tr}",
    )


ANY_SCALAR = {"type": ["string", "number", "boolean"]}
Text = Annotated[str, WithJsonSchema(ANY_SCALAR)]
"""A text, whatever type an editor's YAML gives to it."""
Texts = Annotated[
    tuple[Text, ...], OneOrMany(), WithJsonSchema({"anyOf": [ANY_SCALAR, {"type": "array", "items": ANY_SCALAR, "minItems": 1}]})
]
"""One text, or a list of them."""
Duration = Annotated[timedelta, PlainValidator(parse_duration), WithJsonSchema({"type": "string", "examples": ["90d", "1h30m"]})]
Share = Annotated[
    float | None, PlainValidator(parse_share), WithJsonSchema({"type": ["string", "number"], "examples": ["5%", "off"]})
]
Pattern = Annotated[str, AfterValidator(parse_pattern), WithJsonSchema({"type": "string", "format": "regex"})]
"""A regular expression that RE2 matches in linear time."""
Clock = Annotated[Text, matching("(?:[01][0-9]|2[0-3]):[0-5][0-9]", "a time of day", 'write it like "00:00" or "23:59"')]
"""A time of day, `00:00` to `23:59`."""
PlainNumber = Annotated[Text, matching(r"\s*[+-]?\d+(?:\.\d+)?\s*", "a number", "write it like 12 or 12.50")]
Zone = Annotated[str, AfterValidator(parse_zone), WithJsonSchema({"type": "string", "examples": ["Europe/Lisbon"]})]
Switch = Annotated[
    bool,
    PlainValidator(_switched_on),
    WithJsonSchema({"type": ["boolean", "null"], "description": "This step has no parameter."}),
]


class Strict(BaseModel):
    """The base of our Pydantic models: a value cannot be changed, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _tell_block(cls, value: object) -> object:
        """Store the model's key names on the block, for "did you mean"."""
        if isinstance(value, Block):
            value.allowed = tuple(known.alias or name for name, known in cls.model_fields.items())
        return value

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Raise a mistake for values that cannot be combined."""


def union_members(union: Any) -> dict[str, Any]:
    """Return the models of a tagged union in order, by the part of their tags after the colon."""
    members = ((get_args(member)[0], tag) for member in get_args(get_args(union)[0]) for tag in get_args(member)[1:])
    return {tag.tag.partition(":")[2]: model for model, tag in members if isinstance(tag, Tag)}


Word = Literal["reject", "omit", "warn", "draft"]


class UsePolicy(Strict):
    """Replace the value by a fixed one; `warn` also counts and shows the row, `draft` also sends it as a draft for review."""

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
"""The same, or keep: a value that is not in the list is left unchanged."""


@dataclass(slots=True)
class FileContext:
    """Validation context of a file. `names`: the names that values may use. `open_table` returns a lookup file, or raises
    TableError.
    """

    names: frozenset[str]
    open_table: Callable[[str], Table]
    tables: dict[str, Table] = field(default_factory=dict)

    def table(self, name: str) -> Table:
        """Return a lookup file; each is read once."""
        if name not in self.tables:
            self.tables[name] = self.open_table(name)
        return self.tables[name]


def table_of(name: str, info: ValidationInfo) -> Table | None:
    """Return the lookup file that a model names, None outside the loading of a file."""
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
"""The name of a lookup file: beside the feed file, or in the folder `lookups` next to the feeds' folder."""
Referring = Annotated[Text, AfterValidator(_check_reference)]
"""A text, or a reference to a named value, `$name`; `$$` at the beginning stands for a plain `$`."""
