"""From the words of a command line to the options of a run; what does not fit is one error that says everything."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mappings.errors import ConfigError
from mappings.refusals import did_you_mean
from pipelines.run.options import BRAKE_TEXTS, RunOptions


def options_of(*, keys: str | None, accept: list[str], **others: object) -> RunOptions:
    """Return the options that the words ask for.

    Raises:
        ConfigError: with every word that cannot be.
    """
    asked = {"keys": tuple(filter(None, (keys or "").split(","))), "accept": _brakes(accept), **others}
    if asked.get("stage_only") and asked.get("publish_only"):
        raise ConfigError("--stage-only and --publish-only exclude each other", hint="leave out one; neither does both")
    try:
        return RunOptions.model_validate(asked)
    except ValidationError as error:
        wrong = error.errors()
        hints = dict.fromkeys(filter(None, map(_hint, wrong)))
        raise ConfigError("\n".join(map(_problem, wrong)), hint="; ".join(hints)) from error


def _problem(wrong: ErrorDetails) -> str:
    if not wrong["loc"]:  # words that do not go together
        return wrong["msg"].removeprefix("Value error, ")
    option = str(wrong["loc"][0]).replace("_", "-")
    return f"--{option} {wrong['input']}: {wrong['msg'].lower()}"


def _hint(wrong: ErrorDetails) -> str:
    if not wrong["loc"]:
        return ""
    return did_you_mean(str(wrong["input"]), BRAKE_TEXTS if wrong["loc"][0] == "accept" else ("draft",))


def _brakes(words: list[str]) -> tuple[str, ...]:
    return tuple(brake.strip() for word in words for brake in word.split(",") if brake.strip())
