"""What the models say about a mapping file, put into words for its author: where, what, and what was probably meant."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mappings.positions import Block, PlacedProblem, Position, locate
from mappings.refusals import did_you_mean
from mappings.spec.rules import RULES
from mappings.spec.source import SOURCES
from mappings.spec.values import MARKERS
from mappings.steps.catalogue import STEPS

_CHOICES = {
    "step": tuple(STEPS),
    "rule": RULES,
    "kind": tuple(SOURCES),
    "value": MARKERS,
    "policy": ("reject", "omit", "warn", "draft"),
    "when": ("column", "value", "all", "any", "not"),
}
_SAID_ELSEWHERE = {
    "on": "by",
    "null": "empty_if",
    "null_values": "empty_if",
    "na_values": "empty_if",
    "null_in": "empty_in",
    "empty": "omit",
    "ignore": "omit",
    "sep": "delimiter",
    "separator": "delimiter",
    "sheet": "tab",
    "tab": "sheet",
    "zone": "timezone",
    "timezone": "zone",
}
"""Words by which other programs, or other places of a mapping file, call the same thing."""
_CALLED = {"when": "condition", "key": "column's name", "kind": "kind of source"}
_WORDS = {
    "int_parsing": "a whole number is needed",
    "bool_parsing": "true or false is needed",
    "string_type": "a text is needed",
    "tuple_type": "a list is needed",
    "model_type": "a block of keys is needed",
    "model_attributes_type": "a block of keys is needed",
    "dict_type": "a block of keys is needed",
    "too_short": "at least one entry is needed",
    "int_parsing_size": "a smaller number is needed",
    "greater_than_equal": "a larger number is needed",
    "less_than_equal": "a smaller number is needed",
    "string_too_short": "a text is needed",
}


def find_model_problems(error: ValidationError, document: Block) -> Iterator[PlacedProblem]:
    """Yield every problem that the models found."""
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["type"] != "too_short" or not any(_is_inside(other["loc"], problem["loc"]) for other in problems):
            yield _placed(problem, document)


def _is_inside(loc: tuple[int | str, ...], outer: tuple[int | str, ...]) -> bool:
    """A list is too short only for want of the items that were refused."""
    return len(loc) > len(outer) and loc[: len(outer)] == outer


def _placed(problem: ErrorDetails, document: Block) -> PlacedProblem:  # noqa: PLR0911 - one arm per type of error
    loc = problem["loc"]
    position, block = locate(document, loc)[0], locate(document, loc[:-1])[1]
    match problem["type"]:
        case "extra_forbidden":
            return _unknown_key(str(loc[-1]), position, block)
        case "missing":
            return _missing_key(str(loc[-1]), position, block)
        case "union_tag_invalid":
            return _unknown_choice(problem, position, document)
        case "mistake":
            context = problem.get("ctx", {})
            return PlacedProblem(position, str(context.get("message", "")), str(context.get("hint", "")))
        case "literal_error" | "enum":
            return _not_among(problem, position)
        case "string_pattern_mismatch":
            return PlacedProblem(position, f'"{problem["input"]}" is not written as it must be', "lower-case words joined by -")
        case "value_error":
            return PlacedProblem(position, problem["msg"].removeprefix("Value error, "))
        case kind:
            return PlacedProblem(position, _found(_WORDS.get(kind, problem["msg"]), problem["input"]))


def _found(message: str, found: object) -> str:
    return f'{message}, not "{found}"' if isinstance(found, str) else message


def _unknown_key(key: str, position: Position, block: Block | None) -> PlacedProblem:
    where = block.key_position(key) if block is not None and key in block else position
    allowed = block.allowed if block is not None else ()
    hint = _meant(key, allowed) or (f"the keys here are {', '.join(allowed)}" if allowed else "")
    return PlacedProblem(where, f'unknown key "{key}"', hint)


def _missing_key(key: str, position: Position, block: Block | None) -> PlacedProblem:
    near = did_you_mean(key, (other for other in block if other not in block.allowed)) if block is not None else ""
    return PlacedProblem(position, f'the key "{key}" is missing', near.replace("did you mean", "is it written as"))


def _unknown_choice(problem: ErrorDetails, position: Position, document: Block) -> PlacedProblem:
    what, _, word = str(problem.get("ctx", {}).get("tag", "")).partition(":")
    known = _CHOICES.get(what, ())
    noun, choices = _CALLED.get(what, what), ", ".join(known)
    if not word or word in {"scalar", "yamllist", "block"}:
        return PlacedProblem(position, f"a {noun} is needed here", f"one of {choices}" if known else "")
    found = problem["input"]
    if isinstance(found, Block) and word in found and found is not document:
        position = found.key_position(word)
    return PlacedProblem(position, f'unknown {noun} "{word}"', did_you_mean(word, known) or f"there are {choices}")


def _not_among(problem: ErrorDetails, position: Position) -> PlacedProblem:
    expected = str(problem.get("ctx", {}).get("expected", ""))
    known = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    found = str(problem["input"])
    return PlacedProblem(position, f'"{found}" is not among the choices', _meant(found, known) or f"there are {', '.join(known)}")


def _meant(word: str, known: Collection[str]) -> str:
    """Return the word that is spelt alike, or that means the same; "" if there is none."""
    other = _SAID_ELSEWHERE.get(word, "")
    return f'did you mean "{other}"?' if other in known else did_you_mean(word, known)
