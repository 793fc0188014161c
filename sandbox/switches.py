"""The switches: choices that the service's specification leaves open, each with a documented default; and injected faults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

ErrorKind = Literal["error_408", "error_425", "error_429", "error_500", "error_503", "stored_500"]
GatewayKind = Literal["error_400", "error_403", "error_413", "error_502", "error_504", "error_520"]
BreakKind = Literal["reset", "reset_midway", "closed", "late", "hang", "drip", "truncated", "twice"]
OddKind = Literal["empty", "no_content", "no_doc", "malformed", "wrong_id", "text_id", "long_header", "html"]
FaultKind = Literal[ErrorKind, GatewayKind, BreakKind, OddKind, "redirect"]
"""How an answer goes wrong.

`error_429`: a 429 although no limit is reached. 400, 403 and 413 are a gateway's refusals, whatever the service holds, always
before the work; each 403 has the same request id. 413, 502, 504 and 520 are sent as a gateway's page. `stored_500`: a 500 that
is stored under the key and sent again. `reset_midway`: the connection is reset after half of the answer; `closed`: closed
without an answer; `late`: reset at once, while the work continues and the key is in progress; `hang`: no answer ever; `drip`:
an answer that never ends; `truncated`: closed after half of the answer; `twice`: a second copy of the answer follows, after the
work. `empty`, `no_content` (204), `no_doc`, `malformed` and `wrong_id` (text, fraction, boolean or negative, after the work):
successes without a usable id. `text_id`: the id as a text, after the work. `long_header`: a header of 20,000 characters, after
the work. `html`: a gateway's page with status 200. `redirect`: 307 before the work, 303 after it.
"""
FaultMoment = Literal["before", "after", "either"]
RateKind = Literal["bucket", "window", "sliding"]
RetryAfterStyle = Literal["seconds", "fraction", "date", "several", "absent", "absurd"]
Contract = Literal["as_specified", "new_required_field", "shorter_titles"]
"""What the service's OpenAPI description says, and what it requires of an event."""
RateHeaders = Literal["none", "x-ratelimit", "ratelimit"]
_RATE: Final = re.compile(r"([1-9][0-9]*)/([smh])", re.ASCII)
PERIODS_S: Final = {"s": 1, "m": 60, "h": 3600}
"""Seconds of each period of a rate."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate: at most `count` requests in each `period` (`s`, `m` or `h`)."""

    count: int
    period: str = "s"

    @property
    def period_s(self) -> int:
        """The length of the period in seconds."""
        return PERIODS_S[self.period]

    def __str__(self) -> str:
        return f"{self.count}/{self.period}"


def _read_rate(value: object) -> object:
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    return Rate(int(found[1]), found[2]) if found else None if value == "off" else value


Limit = Annotated[Rate | None, BeforeValidator(_read_rate)]
Faults = Annotated[tuple[FaultKind, ...], BeforeValidator(lambda value: value.split("+") if isinstance(value, str) else value)]


def _switch(default: object, says: str, *bounds: int) -> Any:
    """Return the field of a switch with its line for docs/sandbox.md; `bounds`: smallest and largest value of a number."""
    least, most = bounds or (None, None)
    return Field(default, description=says, ge=least, le=most)


class Switches(BaseModel):
    """The settings of a sandbox. The defaults are a strict service without faults or limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event_items: Literal["minimal", "full", "id"] = _switch(
        "minimal", "Fields of the items of GET /events: `id` and `title`, the whole event, or `id` alone."
    )
    list_scope: Literal["none", "events:read"] = _switch("none", "Scope that GET /events requires.")

    idempotency: Literal["replay", "refuse", "ignore"] = _switch(
        "replay", "A used `Idempotency-Key`: its stored answer again, 409 for any reuse, or the header has no effect."
    )
    idempotency_memory_s: int = _switch(0, "Seconds after which a used key is forgotten; 0 for never.", 0, 10**9)
    in_progress: Literal["bare", "retry_after"] = _switch(
        "bare", "The 409 of a key whose first request is still in progress: bare, or with `Retry-After`."
    )

    rate_events: Limit = _switch(None, "Limit of POST /events per API key.")
    rate_kind: RateKind = _switch("bucket", "How requests are counted: a token bucket, a fixed window or a sliding window.")
    rate_burst: int = _switch(0, "Tokens that a full bucket holds; 0 for one second's worth.", 0, 10**6)
    retry_after: RetryAfterStyle = _switch("seconds", "How `Retry-After` of a 409, 429 or 503 is written.")
    rate_headers: RateHeaders = _switch("none", "Headers that show the limit and what is left of it.")

    max_title_chars: int = _switch(300, "Longest accepted `title`, in characters.", 1, 10**6)

    contract: Contract = _switch(
        "as_specified",
        "The contract of POST /events: as specified, with `organizer` new and required, or with short titles only.",
    )
    contract_rules: Literal["as_the_page", "as_specified"] = _switch(
        "as_the_page", "Whether `contract` applies to events, or only changes the OpenAPI page."
    )
    classification_list: Literal["first", "revised"] = _switch(
        "first", "The list of classifications: the first one, or a later version without `nightlife` and with `workshop` renamed."
    )

    latency_ms: int = _switch(0, "Wait before the work of POST /events and POST /media.", 0, 600_000)
    answer_delay_ms: int = _switch(0, "Wait between that work, done and stored, and its answer.", 0, 600_000)
    fault_per_mille: int = _switch(0, "How many of 1000 attempts of POST /events and POST /media go wrong.", 0, 1000)
    faults: Faults = _switch(("error_500",), "How they go wrong, evenly mixed.")
    fault_moment: FaultMoment = _switch("either", "Whether they go wrong before or after the work is done and stored.")
    fault_attempts: int = _switch(0, "How many first attempts under one key may go wrong; 0 for all.", 0, 10**6)
    fault_hold_ms: int = _switch(300, "How long the work continues after a `late` fault has reset the connection.", 0, 600_000)
    fault_seed: int = _switch(1, "Seed of the faults: the same seed, key and attempt give the same fault.", 0, 2**53)


class SwitchError(ValueError):
    """Invalid switches, all at once: `problems` has one sentence for each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def parse_switches(words: Iterable[str]) -> Switches:
    """Return the defaults with each `name=value` of `words` applied; the last value of a name counts.

    Raises SwitchError with every unknown name or invalid value.
    """
    pairs = [word.partition("=") for word in words]
    return change_switches({name.strip(): value.strip() if sign else None for name, sign, value in pairs}, Switches())


def change_switches(values: Mapping[str, object], base: Switches) -> Switches:
    """Return `base` with `values` applied, written as on the command line; None is a missing value.

    Raises SwitchError with every problem.
    """
    written = {name: "" if value is None else str(value) for name, value in values.items()}
    try:
        return Switches.model_validate({**format_switches(base), **written})
    except ValidationError as wrong:
        raise SwitchError(tuple(dict.fromkeys(map(_problem, wrong.errors())))) from None


def _problem(error: ErrorDetails) -> str:
    name, wrong = str(error["loc"][0]), error["input"]
    if error["type"] == "extra_forbidden":
        return f"there is no switch `{name}`{_nearest(name, _FIELDS)}"
    problem = f"cannot be `{wrong}`" if wrong else "has no value"
    return f"`{name}` {problem}; use {accepted_values(name)}{_nearest(str(wrong), _words(name))}"


def format_switches(switches: Switches) -> dict[str, str]:
    """Return every switch's name and value, in the form that `parse_switches` reads."""
    return {name: _format(getattr(switches, name)) for name in _FIELDS}


def _words(name: str) -> list[str]:
    """Return the allowed words of a switch; none for a number or a rate."""
    kind = _FIELDS[name].annotation
    kind = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return [str(word) for word in get_args(kind)] if get_origin(kind) is Literal else []


def accepted_values(name: str) -> str:
    """Return the allowed values of a switch as text."""
    words, kind = _words(name), _FIELDS[name].annotation
    if kind is int:
        least, most = _FIELDS[name].metadata
        return f"a whole number from {least.ge} to {most.le}"
    if not words:
        return f"`off` or a rate such as {_join(f'50/{period}' for period in PERIODS_S)}"
    return f"one or several of {_join(words)}, joined by `+`" if get_origin(kind) is tuple else f"one of {_join(words)}"


def _join(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _format(value: object) -> str:
    if value is None:
        return "off"
    return "+".join(value) if isinstance(value, tuple) else str(value)


def _nearest(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean `{near[0]}`?" if near else ""


_FIELDS: Final = Switches.model_fields
