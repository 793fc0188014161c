"""What goes wrong in each line of the matrix, and how the service treats idempotency keys: plain values, nothing is run here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Literal

Scene = Literal["answers go wrong", "outage", "outage ends", "worker killed", "service killed", "state lost", "mapping edited"]
Switches = Mapping[str, str | int]

SEED = 7
"""The sandbox draws its faults from it; another one goes wrong in other places."""
MEMORY_S = 2
"""How long a forgetful service remembers a key."""
TRUST_S = 1
"""How long the feed trusts it to: less than it does, as anybody would set it."""


class Keys(Enum):
    """How the service treats a used idempotency key. `said`: for people; `switches`: for the sandbox."""

    REPLAYED = "replays", MappingProxyType({"idempotency": "replay"})
    REFUSED = "refuses reuse (409)", MappingProxyType({"idempotency": "refuse"})
    FORGOTTEN = f"forgets after {MEMORY_S} s", MappingProxyType({"idempotency": "replay", "idempotency_memory_s": MEMORY_S})
    IGNORED = "ignores keys", MappingProxyType({"idempotency": "ignore"})

    def __init__(self, said: str, switches: Switches) -> None:
        self.said = said
        self.switches = switches


@dataclass(frozen=True, slots=True)
class Trouble:
    """One row of the matrix. `switches` make the sandbox go wrong; a scene says who is struck, and when."""

    name: str
    switches: Switches = field(default_factory=dict)
    scene: Scene = "answers go wrong"
    forgets_all: bool = False
    """Neither the ledger nor, once its memory has passed, the service knows what was sent: nothing protects."""


@dataclass(frozen=True, slots=True)
class Place:
    """One line: a trouble, at a service that treats keys in one way."""

    trouble: Trouble
    keys: Keys


def _faulty(*kinds: str, moment: str = "either", attempts: int = 3, per_mille: int = 400, **more: str | int) -> Switches:
    drawn = {"fault_per_mille": per_mille, "fault_attempts": attempts, "fault_seed": SEED}
    return {**drawn, "faults": "+".join(kinds), "fault_moment": moment, **more}


def _either(kind: str, said: str) -> Trouble:
    return Trouble(said, _faulty(kind))


EVERY_ANSWER_LOST = _faulty("reset", moment="after", attempts=0, per_mille=1000)
_SLOW: Switches = {"latency_ms": 150, "answer_delay_ms": 150}
"""A worker is struck in the midst of its rows, however busy this machine is."""
TROUBLES = (
    Trouble("nothing goes wrong"),
    _either("hang", "no answer ever"),
    _either("drip", "an answer that drips for ever"),
    Trouble("connection reset before the work", _faulty("reset", moment="before")),
    Trouble("connection reset after the work", _faulty("reset", moment="after")),
    Trouble("connection reset amid the answer", _faulty("reset_midway", moment="after")),
    Trouble("connection closed without a word", _faulty("closed")),
    Trouble("reset while the work goes on", _faulty("late", moment="after", fault_hold_ms=250)),
    Trouble("the same, and its 409 names a time", _faulty("late", moment="after", fault_hold_ms=250, in_progress="retry_after")),
    _either("truncated", "answer cut short"),
    _either("twice", "answer delivered twice"),
    _either("empty", "success without a body"),
    _either("no_content", "204"),
    _either("no_doc", "success without doc"),
    _either("malformed", "malformed JSON"),
    _either("wrong_id", "id of a wrong type"),
    _either("text_id", "id as a text of digits"),
    _either("long_header", "a header of 20,000 characters"),
    Trouble("lost, or refused by a gateway, in any order", _faulty("reset", "error_400", "error_413", moment="after")),
    Trouble("lost, or denied under one request id, in any order", _faulty("reset", "error_403", moment="after")),
    _either("html", "a gateway's page with status 200"),
    Trouble("redirect", _faulty("redirect", attempts=1, per_mille=150)),
    _either("error_408", "408"),
    _either("error_425", "425"),
    _either("error_500", "500"),
    Trouble("500 kept under the key, before the work", _faulty("stored_500", moment="before", attempts=1)),
    Trouble("500 kept under the key, after the work", _faulty("stored_500", moment="after", attempts=1)),
    _either("error_502", "502"),
    Trouble("503 with Retry-After", _faulty("error_503", retry_after="fraction", per_mille=150)),
    Trouble("503 with Retry-After in several headers", _faulty("error_503", retry_after="several", per_mille=50)),
    _either("error_504", "504"),
    _either("error_520", "520"),
    Trouble("429 now and then", _faulty("error_429", moment="before", retry_after="fraction", per_mille=150)),
    Trouble("429 storm", {"rate_events": "15/s", "rate_burst": 1, "retry_after": "fraction"}),
    Trouble("slow service", {"latency_ms": 200}),
    Trouble("slow answers", {"answer_delay_ms": 200}),
    Trouble("all of it at once", _faulty("reset", "closed", "hang", "truncated", "error_500", "error_503", "html", "empty")),
    Trouble("every answer lost", EVERY_ANSWER_LOST, "outage"),
    Trouble("every answer lost, then the service is back", EVERY_ANSWER_LOST, "outage ends"),
    Trouble("kill -9 of the worker", _SLOW, "worker killed"),
    Trouble("kill -9 of the service", {"latency_ms": 20, "answer_delay_ms": 20}, "service killed"),
    Trouble("kill -9 of the worker, mapping edited", _SLOW, "mapping edited"),
    Trouble("kill -9 of the worker, state DB lost", _SLOW, "state lost", forgets_all=True),
)


def every_place() -> Iterator[Place]:
    return (Place(trouble, keys) for trouble in TROUBLES for keys in Keys)
