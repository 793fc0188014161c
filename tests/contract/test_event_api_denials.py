"""Access that is denied, to a key, a scope or a channel: rows wait, other channels go on, and stored denials are got past."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from unit.connectors_api.wired import Handler, ask, created, told
from unit.state.world import World, row

from connectors.errors import KeyRefusedError, ScopeMissingError
from connectors.event_api.delivery import EventApi
from mappings.errors import SyncError
from pipelines.run.publish import MOST_IN_A_ROW, Drain
from state.enums import Decision, EntryState
from state.ledger.choices import Instruction, Option
from state.ledger.decisions import Decisions, Retried

DENIALS = {"scope": (403, "insufficient_scope", ScopeMissingError), "key": (401, "invalid_api_key", KeyRefusedError)}
LOCKED = [*(denial[:2] for denial in DENIALS.values()), (403, "forbidden"), (404, "not_found")]
STORED_FAILURE = "stored this failure under the row's key and repeats it; the event may exist: a person decides"


@dataclass
class Storing:
    """A service that stores every answer under the idempotency key, those that deny access as well.

    `tells_anew`: a stored answer comes with another request id each time. `is_locked`: access is missing, and looked at
    before the key.
    """

    status: int
    code: str
    tells_anew: bool = False
    is_open: bool = False
    is_locked: bool = False
    stored: dict[str, httpx.Response] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        key = request.headers["idempotency-key"]
        self.asked.append(key)
        if self.is_locked:
            return told(self.status, self.code, request_id=f"req-locked-{len(self.asked)}")
        request_id = f"req-{len(self.asked) if self.tells_anew else len(self.stored)}"
        if self.tells_anew and key in self.stored and self.stored[key].status_code != 201:
            return told(self.status, self.code, request_id=request_id)
        fresh = created(len(self.asked)) if self.is_open else told(self.status, self.code, request_id=request_id)
        return self.stored.setdefault(key, fresh)


def _drained(world: World, service: Handler, *, in_flight: int = 2) -> SyncError | None:
    """Send all that is owed; return why it ended, if there is a reason."""

    async def drained(api: EventApi) -> SyncError | None:
        drain = Drain(world.outbox(), in_flight, 5.0, lambda _: None, api.deliver)
        await drain.run()
        return drain.cause or api.stopped or drain.systemic.scope_cause

    return ask(service, drained)


def _denied(world: World, denial: str, **service: bool) -> Storing:
    status, code, error = DENIALS[denial]
    made = Storing(status, code, **service)
    world.stage([row(str(number)) for number in range(5)])
    for _ in range(2):  # of two denials it is seen whether their request ids differ from row to row
        assert isinstance(_drained(world, made), error)
    assert set(world.states().values()) <= {"pending", "blocked"}
    return made


@pytest.mark.parametrize("denial", DENIALS)
@pytest.mark.parametrize("stores", [True, False], ids=["stored denials are repeated", "no denial is stored"])
def test_once_access_is_there_rows_go_out_under_their_next_key_only_where_their_stored_denial_is_repeated(
    world: World, denial: str, *, stores: bool
) -> None:
    service = _denied(world, denial)
    denied = len(set(service.asked)) if stores else 0
    if not stores:
        service.stored.clear()
    service.is_open = True
    assert _drained(world, service) is None
    assert set(world.states().values()) == {"delivered"}
    assert [world.known(str(number)).revision for number in range(5)] == [int(number < denied) for number in range(5)]
    assert len(set(service.asked)) == 5 + denied


@pytest.mark.parametrize("denial", DENIALS)
def test_as_long_as_access_is_missing_no_row_uses_up_more_than_one_key_in_a_run(world: World, denial: str) -> None:
    service = _denied(world, denial)
    for run in (1, 2):
        assert isinstance(_drained(world, service), DENIALS[denial][2])
        assert max(world.known(str(number)).revision for number in range(5)) <= run
    service.is_open = True
    assert _drained(world, service) is None


@pytest.mark.parametrize("denial", DENIALS)
def test_a_person_gets_rows_through_whose_stored_denial_is_told_under_other_request_ids(world: World, denial: str) -> None:
    service = _denied(world, denial, tells_anew=True)
    service.is_open = True
    assert isinstance(_drained(world, service), DENIALS[denial][2])
    decisions = Decisions(world.ledger.fence("", world.lease.token), "ann@desk")
    retried = decisions.retry()
    assert retried.left_alone
    assert retried == Retried(0, 0, retried.left_alone)
    assert isinstance(_drained(world, service), DENIALS[denial][2])
    for one in decisions.retry().left_alone:
        decisions.resolve([one.row_key], Instruction(Option.RESEND))
    assert _drained(world, service) is None
    assert set(world.states().values()) == {"delivered"}
    assert world.known("0").revision == 1
    assert world.known("0").decision is Decision.RETRIED


@pytest.mark.parametrize(("status", "code"), LOCKED)
def test_where_the_books_were_lost_no_key_is_left_by_itself_while_access_is_missing(
    world: World, tmp_path: Path, status: int, code: str
) -> None:
    """The event is there under the first key: a denial before the key is read says nothing of it."""
    service = Storing(status, code, is_open=True)
    world.stage([row("a")])
    assert _drained(world, service) is None
    young = World(tmp_path / "young.db")
    young.stage([row("a")])
    service.is_locked = True
    for _ in range(3):
        _drained(young, service)
        Decisions(young.ledger.fence("", young.lease.token), "ann@desk").retry()
    service.is_locked = False
    assert _drained(young, service) is None
    assert (young.known("a").state, len(set(service.asked))) == (EntryState.DELIVERED, 1)
    young.engine.dispose()


def test_a_stored_failure_stays_uncertain_under_the_same_key_in_every_run_and_says_so(world: World) -> None:
    service = Storing(500, "internal_error")
    world.stage([row("a")])
    for _ in range(2):
        assert _drained(world, service) is None
        entry = world.known("a")
        assert (entry.state, entry.revision) == (EntryState.UNCERTAIN, 0)
        assert entry.answer is not None
        assert STORED_FAILURE in entry.answer.message
    assert len(set(service.asked)) == 1


BARRED, FREE = 8, 7


@pytest.mark.parametrize(("barred", "free"), [(30, 5), (MOST_IN_A_ROW + 50, 0)], ids=["some", "all"])
def test_other_channels_are_served_however_many_rows_of_a_barred_one_stand_before_them(
    world: World, barred: int, free: int
) -> None:
    asked: list[int] = []

    async def service(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["channelId"])
        return told(403, "insufficient_scope") if asked[-1] == BARRED else created(len(asked))

    channels = enumerate([BARRED] * barred + [FREE] * free)
    bodies = ((number, channel, json.dumps({"channelId": channel, "title": f"Evening {number}"})) for number, channel in channels)
    world.stage([replace(row(str(number)), body=body.encode(), channel_id=channel) for number, channel, body in bodies])
    cause = _drained(world, service, in_flight=4)
    assert isinstance(cause, ScopeMissingError)
    assert f"channel {BARRED}" in str(cause)
    assert asked.count(FREE) == free
    assert asked.count(BARRED) <= 4
