"""From the words of a command line to the options of a run; what does not fit is one error that says everything."""

from __future__ import annotations

from pydantic import ValidationError

from mappings.errors import ConfigError
from pipelines.options import BRAKE_TEXTS, RunOptions


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
        problems = [f"--{'-'.join(map(str, one['loc'][:1])).replace('_', '-')}: {one['msg'].lower()}" for one in error.errors()]
        raise ConfigError("\n".join(problems), hint="brakes: " + ", ".join(BRAKE_TEXTS)) from error


def _brakes(words: list[str]) -> tuple[str, ...]:
    return tuple(brake.strip() for word in words for brake in word.split(",") if brake.strip())
