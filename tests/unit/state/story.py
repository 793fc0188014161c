"""Stories of a feed in one line: what its source says, what the service answers, what people do, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from unit.state.books import BOOK, CANCELLED, OVER, TO_COME, decisions, event, resolve
from unit.state.world import FEED, World, answer, rejection, row, skipped

from connectors.errors import KeyRefusedError
from mappings.delivery import (
    Blocked,
    Conflict,
    Cover,
    Intent,
    Postponed,
    Receipt,
    Refusal,
    Superseded,
    Uncertain,
    Unconfirmed,
    Verdict,
)
from mappings.errors import TransientError
from mappings.outcome import RowOutcome
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey, idempotency_key
from state.ledger.accounts import DEFAULT_POLICY, ReadAccount, ReadKind, StagePolicy, StageReport
from state.ledger.choices import Instruction, Option
from state.ledger.stage import open_stage
from state.ledger.standing import RowRecord
from state.queries import LedgerQueries, RowFilter

FAILED = Uncertain(answer(500, "req-1"))
VERDICTS: dict[str, list[Verdict]] = {
    "sent": [],
    "refused": [Refusal(answer(400))],
    "refused at once": [Refusal(answer(0, ""), attempts=0)],
    "refused anew": [Refusal(answer(400, "req-2")), Refusal(answer(400, "req-3"))],
    "blocked": [Blocked(answer(403))],
    "uncertain": [Uncertain(answer(503))],
    "conflict": [Conflict(answer(409))],
    "superseded": [Superseded(answer(409))],
    "unconfirmed": [Unconfirmed(answer(409))],
    "denied": [Postponed(answer(401), KeyRefusedError("the key is revoked"))],
    "paced": [Postponed(answer(429), TransientError("come back later"), attempts=0)],
    "denied apart": [Postponed(answer(401, f"req-{number}"), KeyRefusedError("the key is revoked")) for number in (9, 8)],
    "limited": [Postponed(answer(429), TransientError("come back later"), is_limited=True)],
    "blocked unanswered": [Blocked(answer(403), copies=1)],
    "next key": [Superseded(answer(400)), Receipt(2_000, answer(201))],
    "next key taken": [Superseded(answer(400)), Superseded(answer(409))],
    "delivered as 2000": [Receipt(2_000, answer(201))],
    "failed": [FAILED],
    "failed again": [FAILED, FAILED],
    "failed, then delivered": [FAILED, Receipt(2_000, answer(201))],
    "failed otherwise": [Uncertain(answer(500, "req-2"))],
    "failed unasked": [replace(FAILED, attempts=0)],
    "failed unnamed": [Uncertain(answer(500, ""))],
    "created unnamed": [Uncertain(answer(201, "req-1"))],
}
"""What the service answers to the oldest row that is owed; all others arrive."""
WAYS = {
    "ignoring": StagePolicy(on_change="ignore", on_vanish="ignore"),
    "drafts": StagePolicy(drafts_only=True),
    "copies": StagePolicy(holds_copies=False),
    "chosen": StagePolicy(kind=ReadKind.CHOSEN),
    "onward": StagePolicy(kind=ReadKind.INCREMENTAL),
    "accepting": StagePolicy(accepted=("new",)),
    **dict.fromkeys(("part", "braked", "nothing"), DEFAULT_POLICY),
}
"""How a read differs from the usual one."""
WARNED = (Reason(ReasonCode.REQUIRED, "coverImage", "PICTURE", "", "it could not be fetched"),)
NOTHING = StageReport(run_id="", is_whole=True, account=ReadAccount())
EXTRAS = ("vanished", "past", "withdrawn", "restaged", "waiting", "ignored")


def outcome(word: str) -> RowOutcome:
    """Return what a row came to: `a`, `a:title`, `a:title/status`, `a~looks`, `a@over`, `a@to-come`, `a*` with an image,
    `a!` with a warning, `a>` outside the window; `!a` rejected, `-a` left out, `?a` left out by a rule, `#a` cancelled.
    """
    kind, key = word[0], word[1:]
    if kind in "!-?#":
        left_out = skipped(key)
        others = {"!": rejection(key), "-": left_out, "?": replace(left_out, rule=2)}
        return others.get(kind, replace(CANCELLED, row_key=RowKey(key)))
    key, _, when = word.partition("@")
    if when:
        return event(key, OVER if when == "over" else TO_COME)
    key, _, twin = key.partition("~")
    key, _, said = key.partition(":")
    title, _, status = said.partition("/")
    cover = Cover("https://img.example/b.jpg", "omit") if key.endswith("*") else None
    warnings = WARNED if key.endswith("!") else ()
    mapped = row(
        key.rstrip("*>!"), title or None, status=status or "published", twin=twin or None, cover=cover, warnings=warnings
    )
    return replace(mapped, outside="already over") if key.endswith(">") else mapped


def play(world: World, story: str) -> StageReport:
    """Let the steps of a story happen, and return the report of the last read, or one of nothing.

    A step is a word of `VERDICTS`, a decision (`--ignore a`, `--same-as n a`, `retry`), `claimed`, `crash`, `cut` (both),
    `100 days`, `25 hours` (and a run), `begun` (a read that is never ended), or a read: the rows of each chunk, after the words
    of `WAYS` for it.
    """
    report = NOTHING
    for step in map(str.strip, story.split("|")):
        words = step.split()
        if step in VERDICTS:
            world.publish(*VERDICTS[step])
        elif step in {"claimed", "crash", "cut"}:
            if step != "crash":
                world.outbox().settle_and_claim([], 1)
            if step != "claimed":
                world.crash()
        elif step.endswith(" days"):
            world.clock.turn(days=int(words[0]))
        elif step.endswith(" hours"):
            world.clock.turn(hours=int(words[0]))
            world.crash()
            world.outbox()
        elif step == "begun":
            open_stage(world.ledger.fence(world.run(), world.lease.token), is_whole=True)
        elif step == "retry":
            decisions(world).retry()
        elif step.startswith("--"):
            resolve(world, words[1], instruction(words[0], *words[2:]))
        else:
            report = _read(world, step)
    return report


def instruction(option: str, other: str = "") -> Instruction:
    """Return a choice by its option: the event that is named, or the row."""
    if option == Option.EVENT_ID:
        return Instruction(Option.EVENT_ID, event_id=int(other))
    return Instruction(Option(option), RowKey(other) if other else None)


def _read(world: World, step: str) -> StageReport:
    ways = [word for word in step.split() if word in WAYS]
    changes = {name: value for way in ways for name, value in asdict(WAYS[way]).items() if value != getattr(DEFAULT_POLICY, name)}
    chunks = [[outcome(word) for word in chunk.split() if word not in WAYS] for chunk in step.split(" / ")]
    is_whole = not {"part", "chosen", "onward"}.intersection(ways)
    brakes = ["new"] if "braked" in ways else []
    return world.stage(*chunks, is_whole=is_whole, brakes=brakes, policy=replace(DEFAULT_POLICY, **changes))


def told(report: StageReport) -> str:
    """Return the numbers of a report that are not zero."""
    numbers = {name: count for name, count in asdict(report.account).items() if name != "read"}
    numbers |= {name: getattr(report, name) for name in EXTRAS}
    return ", ".join(f"{name} {count}" for name, count in numbers.items() if count)


def _wish(body: bytes, key: str) -> str:
    """Return what a payload asks for, as far as it is not what `key` alone stands for."""
    said = json.loads(body)
    title = said["title"].removeprefix("Title of ")
    return " ".join([said["status"]] * (said["status"] != "published") + [title] * (title != key))


def stands(entry: RowRecord) -> str:
    """Return what the ledger says of a row."""
    revision = f"key {entry.revision}" if entry.revision else ""
    drift = f"but {entry.drift_kind}" if entry.drift_kind else ""
    drift += f" {_wish(entry.drift_body, entry.row_key)}" if entry.drift_body else ""
    gone = f"gone {entry.vanished_by}" if entry.vanished_at else "over" if entry.past_at else ""
    applied = f"shown {_wish(entry.baseline_body, entry.row_key)}" if entry.baseline_body else ""
    decided = f"{'removed ' if entry.removed_at else ''}{entry.decision or ''}"
    usual = 1000 + entry.entry_id if entry.state == "delivered" else None
    event_id = "" if entry.event_id == usual else f"as {entry.event_id}"
    like = f"like {entry.candidate}" if entry.candidate else ""
    words = (
        *(entry.row_key, entry.state, event_id, _wish(entry.body, entry.row_key) if entry.body else "", revision, applied),
        *(drift, gone, like, decided),
    )
    return " ".join(" ".join(words).split())


def picture(world: World) -> str:
    """Return what the ledger says of every row."""
    return ", ".join(map(stands, LedgerQueries(world.engine).every_row(BOOK, RowFilter())))


def _request(world: World, intent: Intent) -> str:
    """Return what is sent of a row: under which key, in which words, and what is known of earlier attempts."""
    revision = world.known(intent.row_key).revision
    assert intent.key == idempotency_key("tests", FEED, intent.row_key, revision=revision)
    words = (
        intent.row_key,
        f"key {revision}" if revision else "",
        _wish(intent.body, intent.row_key),
        "unanswered" * intent.is_unanswered,
        "limited" * intent.is_limited,
        f"refused by {intent.refused_request_id}" * bool(intent.refused_request_id),
        f"denied by {intent.denial.request_id}{' resent' * intent.denial.is_resent}" if intent.denial else "",
    )
    return " ".join(" ".join(words).split())


def goes_out(world: World) -> str:
    """Return what the next run sends, in order."""
    return ", ".join(_request(world, intent) for intent in world.outbox().settle_and_claim([], 99))


def stories(text: str, names: tuple[str, ...] = ("story", "numbers", "ledger")) -> pytest.MarkDecorator:
    """Parametrise a test with stories: under each sentence lines of `story => numbers of its last read => the ledger then`."""
    cases: list[tuple[str, ...]] = []
    ids: list[str] = []
    sentence = ""
    for line in filter(str.strip, text.splitlines()):
        if line[0] != " ":
            sentence = line
            continue
        cases.append(tuple(" ".join(part.split()) for part in line.split("=>")))
        ids.append(sentence)
    return pytest.mark.parametrize(names, cases, ids=ids)
