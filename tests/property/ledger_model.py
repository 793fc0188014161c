"""A model checker for one row: the rules of `state.facts` under every order of edits, reads, runs with faults, kills, lost
access, decisions and undo, breadth first up to a bound.

The service is a model with one of many characters. What an answer means is decided by the real client, over a scripted wire.

Usage: `PYTHONPATH=tests python -m property.ledger_model [STEPS [WORLDS]]`, to go on from so many worlds after each step.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from random import Random
from typing import NamedTuple

import httpx
from unit.connectors_api.wired import api_over, created, intent, page, told
from virtual_time import at_once

from connectors.errors import OutageError
from connectors.retry import RetryPolicy
from mappings.delivery import Denial, Verdict
from state import facts
from state.enums import Decision, EntryState, Grant, Observed, Outcome
from state.facts import NO_ATTEMPTS, Attempts, Change, Effect, May, Plan, Reading, Tried

KEYS = 4
"""How many keys of a row are followed."""
DECISIONS = 2
"""How many decisions, not taken back, one path may have."""
_GONE = (Observed.VANISHED, Observed.GONE)
_WITH_BODY = (Observed.EDITED, Observed.TO_PUBLISH, Observed.RETURNED, Observed.HELD)
_OPTIONS = (
    *(Decision.EVENT_ID, Decision.RESEND, Decision.RETRY, Decision.IGNORE, Decision.APPLIED, Decision.REMOVED),
    Decision.RELEASE,
)
_READINGS = {"cancelled": Reading.CANCELLED, "absent": Reading.ABSENT, "over": Reading.OVER}


class Character(NamedTuple):
    """What the specification leaves open. `other_body`, `same_body`: whether a key used before is answered 409."""

    other_body_409: bool = False
    same_body_409: bool = False
    validates_first: bool = False
    checks_access_first: bool = False
    keeps_refusals: bool = True
    keeps_denials: bool = False
    has_one_denial_id: bool = False
    denies_scope: bool = False
    creates_and_limits: bool = False


_OTHER, _ALL = Character(other_body_409=True), Character(other_body_409=True, same_body_409=True)
CHARACTERS = (
    *(Character(), _OTHER, _ALL),
    *(one._replace(validates_first=True) for one in (Character(), _OTHER, _ALL)),
    *(Character(keeps_refusals=False), _OTHER._replace(keeps_refusals=False, validates_first=True)),
    *(one._replace(checks_access_first=True) for one in (Character(), _OTHER)),
    Character(checks_access_first=True, has_one_denial_id=True),
    _OTHER._replace(checks_access_first=True, has_one_denial_id=True, denies_scope=True),
    Character(keeps_denials=True),
    _ALL._replace(keeps_denials=True, has_one_denial_id=True),
    _OTHER._replace(keeps_denials=True, has_one_denial_id=True, denies_scope=True, checks_access_first=True),
    *(one._replace(creates_and_limits=True) for one in (Character(), _OTHER._replace(validates_first=True), _ALL)),
)


class Rules(NamedTuple):
    """The functions under test; a mutant replaces one."""

    effect_of: Callable[..., Effect] = facts.effect_of
    decide: Callable[..., Change | None] = facts.decide
    plan: Callable[..., Plan] = facts.plan


class Decided(NamedTuple):
    """A decision as its table has it: the entry before. `attempts`, `is_old`: the old key's; `now`: those after it."""

    option: Decision
    wish: str
    outcome: Outcome
    revision: int
    has_event: bool
    body: str
    after: Outcome
    attempts: Attempts
    is_old: bool
    now: Attempts


class Entry(NamedTuple):
    """An entry with its facts. `is_old`: the service may have forgotten its first request; `wanted`: the observed body."""

    outcome: Outcome
    body: str = "A"
    revision: int = 0
    has_event: bool = False
    attempts: Attempts = NO_ATTEMPTS
    is_old: bool = False
    observed: Observed = Observed.SAME
    wanted: str = ""
    decisions: tuple[Decided, ...] = ()

    @property
    def may(self) -> May:
        return facts.may_exist(self.outcome, self.attempts.tried)

    @property
    def wish(self) -> str:
        if self.outcome is Outcome.HELD:
            return Observed.HELD
        return self.observed if self.observed in (Observed.VANISHED, Observed.CANCELLED) else self.wanted or self.body

    @property
    def is_ignored(self) -> bool:
        return bool(self.decisions) and self.decisions[-1].option is Decision.IGNORE and self.decisions[-1].wish == self.wish

    @property
    def may_leave(self) -> bool:
        """Whether the service remembers the key, or a person takes the risk."""
        return not self.is_old or self.attempts.granted is Grant.RESEND

    def seen(self, observed: Observed, wanted: str = "") -> Entry:
        return self._replace(observed=observed, wanted=wanted)

    def asked(self, wish: str) -> Entry:
        """Observe anew what the source asks for."""
        if wish in (Observed.CANCELLED, Observed.VANISHED, Observed.GONE):
            return self.seen(Observed(wish))
        if self.outcome is Outcome.REMOVED:
            return self.seen(Observed.RETURNED, wish)
        return self.seen(Observed.SAME) if wish == self.body else self.seen(Observed.EDITED, wish)


class Stored(NamedTuple):
    """What the service keeps under a key."""

    kind: str
    body: str
    request_id: str


class World(NamedTuple):
    """The ledger's row, its source and the service. `risked`: the further events that a person has risked."""

    entry: Entry | None = None
    source: str = "A"
    stored: tuple[Stored | None, ...] = (None,) * KEYS
    events: tuple[int, ...] = (0,) * KEYS
    refuses_a: bool = False
    has_access: bool = True
    risked: int = 0
    decisions_left: int = DECISIONS


class Step(NamedTuple):
    """A step to another world. `broken`: the promise that it breaks, if any."""

    name: str
    world: World
    broken: str = ""


class Met(NamedTuple):
    """What the client meets on one request."""

    kind: str
    request_id: str = ""


LOST = ("lost before", "lost after")
WIRES = ("answer", *LOST, "limited", "gateway", "closed", "unreached")
SCRIPTS = (
    *((wire,) for wire in WIRES),
    *product((*LOST, "limited"), WIRES),
    *(("lost after", "access changes", wire) for wire in ("answer", "lost after")),
)
"""What happens to the requests of a call."""


_REFUSALS = {
    "refused": (422, "invalid_request"),
    "denied": (403, "forbidden"),
    "scope": (403, "insufficient_scope"),
    "used": (409, "conflict"),
}


def _response(met: Met, *, is_last: bool) -> httpx.Response:
    if met.kind == "created":
        return created()
    if met.kind == "gateway":
        return page(413)
    if met.kind == "limited":  # with a pause beyond the feed's patience, if it is the last answer
        return told(429, "rate_limited", headers={"retry-after": "3600" if is_last else "1"})
    return told(*_REFUSALS[met.kind], request_id=met.request_id)


@cache
def verdict_on(known: Attempts, script: tuple[Met, ...]) -> Verdict:
    """Return the client's verdict on a row whose requests meet this, the last one for ever."""
    is_resent = known.granted is Grant.RESEND or (known.granted is Grant.RETRY and known.tried is Tried.NO)
    row = intent(
        is_unanswered=known.tried is not Tried.NO,
        is_limited=known.tried is Tried.LIMITED,
        refused_request_id=known.refused_id or "",
        denial=None if known.denied_id is None else Denial(known.denied_id, is_resent=is_resent),
    )
    left = list(script)

    async def main() -> Verdict:
        def answer(_: httpx.Request) -> httpx.Response:
            met = left.pop(0) if len(left) > 1 else left[0]
            if left[0].kind == "closed":
                api.limiter.close(OutageError("another row found the service away"))
            if met.kind == "lost":
                raise httpx.ReadTimeout("")
            if met.kind == "unreached":
                raise httpx.ConnectError("")
            return _response(met, is_last=met is left[0])

        uncounted = ("limited", "closed")
        counted = sum(met.kind not in uncounted for met in script) + (script[-1].kind in uncounted)
        api, http = api_over(answer, policy=RetryPolicy(attempts=counted))
        http.is_recognised = True
        if script[0].kind == "closed":
            api.limiter.close(OutageError("another row found the service away"))
        async with http:
            return await api.deliver(row)

    return at_once(main)


def _fresh_id(world: World, entry: Entry, met: list[Met]) -> str:
    """Return a request id that nothing has."""
    known = {one.request_id for one in (*world.stored, *met) if one} | {entry.attempts.refused_id, entry.attempts.denied_id}
    return next(name for name in map("r{}".format, range(1, 20)) if name not in known)


@dataclass
class Checker:
    """Explores the worlds of one service. `broken`: what breaks each promise, with the steps that lead there."""

    character: Character
    rules: Rules
    broken: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[World, tuple[World | None, str]] = field(default_factory=dict)
    _ends: dict[World, bool] = field(default_factory=dict)

    def explore(self, depth: int, most: int, *, is_held: bool = False) -> int:
        """Check every step from all worlds in fewer than `depth` steps from the start, but go on from `most` of each number of
        steps only, drawn at random with a fixed seed; return how many worlds were met.
        """
        start = World(Entry(Outcome.HELD, "", observed=Observed.HELD, wanted="A")) if is_held else World()
        self.seen, layer, draw = {start: (None, "")}, [start], Random(depth)
        for _ in range(depth):
            found = list[World]()
            for world in layer:
                for step in self.steps(world):
                    if broken := step.broken or _broken(world, step, self.character):
                        self._report(broken, world, step.name)
                    elif step.world not in self.seen:
                        self.seen[step.world] = (world, step.name)
                        found.append(step.world)
            layer = found if len(found) <= most else draw.sample(found, most)
            for world in layer:
                self._check_end(world)
        return len(self.seen)

    def _report(self, what: str, world: World, name: str) -> None:
        names, at = [name], world
        while (came := self.seen[at])[0] is not None:
            names.append(came[1])
            at = came[0]
        self.broken.setdefault(what, []).append(f"{' | '.join(reversed(names))}\n    by {self.character}")

    def steps(self, world: World) -> Iterator[Step]:
        """Yield all that may happen next."""
        entry = world.entry
        yield from (Step(f"source {src}", world._replace(source=src)) for src in ("A", "B", *_READINGS) if src != world.source)
        yield self.read(world)
        yield Step("A is accepted" if world.refuses_a else "A is refused", world._replace(refuses_a=not world.refuses_a))
        yield Step("access lost" if world.has_access else "access back", world._replace(has_access=not world.has_access))
        if entry is None:
            return
        for script in SCRIPTS if _opened(entry).outcome is Outcome.OWED else SCRIPTS[:1]:
            yield from self.run(world, script)
        yield from (step for option in _OPTIONS for step in self.decided(world, option))
        if (back := undone(entry)) is not None:
            yield Step("undo", world._replace(entry=back))
        # A service that creates and answers 429 must not forget: such copies cannot be prevented.
        if any(world.stored) and (entry.attempts.requests or not self.character.creates_and_limits):
            yield Step("a day goes by", world._replace(entry=_aged(entry), stored=(None,) * KEYS))

    def read(self, world: World) -> Step:
        """Read the source once, whole."""
        entry, source = world.entry, world.source
        if entry is None:
            new = None if source in _READINGS else Entry(Outcome.OWED, source)
            return Step("read", world._replace(entry=new))
        reading = _READINGS.get(source) or (Reading.SAME if source == entry.body else Reading.OTHER)
        plan = self.rules.plan(entry.outcome, entry.attempts.tried, reading)
        if plan is Plan.LEAVE_OUT:  # a row that is left out is as one that is not there
            plan = self.rules.plan(entry.outcome, entry.attempts.tried, Reading.ABSENT)
        return Step("read", world._replace(entry=_planned(entry, plan, source)))

    def run(self, world: World, script: tuple[str, ...] = ("answer",)) -> Iterator[Step]:
        """Open a drain, claim the row, send it with these faults, and settle it, or be killed before that."""
        entry = world.entry and _opened(world.entry)
        if entry is None or entry.outcome is not Outcome.OWED:
            if entry != world.entry:
                yield Step("run", world._replace(entry=entry))
            return
        now, met = self._sent(world, entry, script)
        name = f"run {', '.join(script)}"
        if script == ("lost before",):  # killed after the claim, which uses up what was granted
            yield Step("run, killed", world._replace(entry=_claimed(entry, 1)))
        if script[-1] != "closed":
            yield Step(f"{name}, killed", now._replace(entry=_claimed(entry, len(met))))
        verdict = verdict_on(entry.attempts, met)
        effect = self.rules.effect_of(verdict, entry.attempts, are_denials_own=not self.character.has_one_denial_id)
        attempts = effect.attempts._replace(requests=min(effect.attempts.requests, 2))
        if effect.is_next_key or (effect.outcome is Outcome.CREATED and attempts.requests < 2):
            attempts = NO_ATTEMPTS
        after = entry._replace(
            outcome=effect.outcome, revision=entry.revision + effect.is_next_key, attempts=attempts, is_old=False
        )
        if after.revision < KEYS:
            broken = self._broken_by(effect, verdict, entry, now)
            after = after._replace(has_event=effect.event_id is not None)
            yield Step(f"{name}: {type(verdict).__name__}", now._replace(entry=after), broken)

    def _broken_by(self, effect: Effect, verdict: Verdict, entry: Entry, now: World) -> str:
        """Return the promise that an answer breaks."""
        if effect.is_next_key and entry.attempts.granted is not Grant.RESEND and now.events[entry.revision]:
            return "the key changes without a person while its event exists"
        if effect.is_next_key and verdict.copies:
            return "the key changes although a request of this call may have created the event"
        stored = now.stored[entry.revision]
        is_another = effect.outcome is Outcome.CREATED and (stored and stored.body) != entry.body
        return "the entry says another body than its event" if is_another and not self.character.creates_and_limits else ""

    def _sent(self, world: World, entry: Entry, script: tuple[str, ...]) -> tuple[World, tuple[Met, ...]]:
        """Return the world after the requests of a call, and what the client meets."""
        arrives = {"answer", "lost after"} | ({"limited"} if self.character.creates_and_limits else set())
        met = list[Met]()
        for wire in script:
            if wire == "access changes":
                world = world._replace(has_access=not world.has_access)
                continue
            answered, answer = self._served(world, entry, met)
            world = answered if wire in arrives else world
            met.append(answer if wire == "answer" else Met("lost" if wire in LOST else wire))
        return world, tuple(met)

    def _served(self, world: World, entry: Entry, before: list[Met]) -> tuple[World, Met]:
        """Return the world after a request has reached the service, and its answer."""
        of, key, body = self.character, entry.revision, entry.body
        fresh = _fresh_id(world, entry, before)
        denied = Met("scope" if of.denies_scope else "denied", "one" if of.has_one_denial_id else fresh)
        if of.checks_access_first and not world.has_access:
            return world, denied
        is_refused = world.refuses_a and body == "A"
        if of.validates_first and is_refused:
            return world, Met("refused", fresh)
        stored = world.stored[key]
        if stored is not None:
            is_used = of.same_body_409 or (of.other_body_409 and stored.body != body)
            return world, Met("used", fresh) if is_used else Met(stored.kind, stored.request_id)
        answer = denied if not world.has_access else Met("refused", fresh) if is_refused else Met("created")
        is_kept = {"created": True, "refused": of.keeps_refusals}.get(answer.kind, of.keeps_denials)
        if is_kept:
            kept = (*world.stored[:key], Stored(answer.kind, body, answer.request_id), *world.stored[key + 1 :])
            world = world._replace(stored=kept)
        if answer.kind == "created":
            world = world._replace(events=(*world.events[:key], world.events[key] + 1, *world.events[key + 1 :]))
        return world, answer

    def decided(self, world: World, option: Decision) -> Iterator[Step]:
        """Let a person decide, if that is possible."""
        entry = world.entry
        if entry is None or not world.decisions_left or (option is Decision.EVENT_ID and not any(world.events)):
            return
        change = self.rules.decide(option, entry.outcome, entry.attempts, entry.observed)
        if not isinstance(change, Change) or entry.revision + change.is_next_key >= KEYS:
            return
        new = entry._replace(outcome=change.outcome, revision=entry.revision + change.is_next_key)
        is_kept = change.outcome is Outcome.REMOVED and entry.has_event
        new = new._replace(has_event=change.outcome is Outcome.CREATED or is_kept)
        if change.takes_wanted:
            new = new._replace(body=entry.wanted).seen(Observed.SAME)
        if option is Decision.REMOVED:
            new = new.seen(Observed.SAME)
        if change.is_next_key:
            new = new._replace(attempts=NO_ATTEMPTS, is_old=False)
        elif change.grant is not None:
            new = new._replace(attempts=new.attempts._replace(granted=change.grant))
        was = Decided(
            *(option, entry.wish, entry.outcome, entry.revision, entry.has_event, entry.body, change.outcome),
            *(entry.attempts, entry.is_old, new.attempts),
        )
        new = new._replace(decisions=(*entry.decisions, was))
        after = world._replace(entry=new, decisions_left=world.decisions_left - 1, risked=world.risked + change.has_risk)
        if option is Decision.REMOVED:
            after = after._replace(events=(0,) * KEYS)
        yield Step(option.value, after, "" if undone(new) == entry else f"undo does not restore what was before {option}")

    def _check_end(self, world: World) -> None:
        """Once all is well, the row ends delivered or on a list, and a person can have it delivered."""
        entry = world.entry
        if entry is None or world.source in _READINGS:
            return
        well = _settled(world)
        if well not in self._ends:
            self._ends[well] = True
            if not self._is_shown(well):
                self._report("the row is left silently", world, "all is well")
            if not self._is_deliverable(well):
                self._report("a person is stuck", world, "all is well")

    def _is_shown(self, world: World) -> bool:
        for _ in range(8):
            world = self.read(world).world
            world = next((step.world for step in self.run(world) if not step.name.endswith("killed")), world)
        entry = world.entry
        if entry is None:
            return False
        is_listed = bool(facts.waits(entry.outcome, entry.attempts.tried, entry.observed))
        return is_listed or (entry.outcome is Outcome.CREATED and entry.body == world.source)

    def _is_deliverable(self, start: World) -> bool:
        """Return whether good answers, decisions and edits can end with the event that the source asks for."""
        met, waiting = {start}, deque([start])
        while waiting:
            world = waiting.popleft()
            entry = world.entry
            if entry is not None and entry.outcome is Outcome.CREATED:
                return True
            others = [
                Step("edit", world._replace(source="B" if world.source == "A" else "A")),
                self.read(world),
                *self.run(world),
            ]
            for option in _OPTIONS:
                others += self.decided(world._replace(decisions_left=DECISIONS), option)
            for step in others:
                well = _settled(step.world)
                if not step.name.endswith("killed") and not step.broken and well not in met:
                    met.add(well)
                    waiting.append(well)
        return False


def _settled(world: World) -> World:
    """Return the world with all well, but for a payload that is refused: the present key is the first, nothing was decided."""
    entry = world.entry
    if entry is None:
        return World(source=world.source, refuses_a=world.refuses_a)
    key = entry.revision
    stored, events = world.stored[key:], world.events[key:]
    entry = entry._replace(revision=0, decisions=())
    return World(entry, world.source, (*stored, *(None,) * key), (*events, *(0,) * key), world.refuses_a)


_SHOWN = {
    Plan.UNCHANGED: Observed.SAME,
    Plan.STILL_REFUSED: Observed.SAME,
    Plan.SETTLE: Observed.SAME,
    Plan.PIN: Observed.SAME,
    Plan.WITHDRAW: Observed.SAME,
    Plan.DRIFT: Observed.EDITED,
    Plan.HOLD: Observed.HELD,
    Plan.RETURN: Observed.RETURNED,
    Plan.CANCEL: Observed.CANCELLED,
    Plan.VANISH: Observed.VANISHED,
    Plan.END: Observed.GONE,
}


def _planned(entry: Entry, plan: Plan, source: str) -> Entry | None:
    """Return the entry after a read; None if it is withdrawn and no key of it was ever used."""
    if plan is Plan.KEEP:
        return entry
    if plan is Plan.WITHDRAW and entry.revision == 0 and entry.attempts == NO_ATTEMPTS:
        return None
    if plan is Plan.PIN:
        entry = entry._replace(body=source)
    became = {Plan.PIN: Outcome.OWED, Plan.HOLD: Outcome.HELD, Plan.WITHDRAW: Outcome.IDLE}.get(plan, entry.outcome)
    observed = _SHOWN[plan]
    return entry._replace(outcome=became).seen(observed, source if observed in _WITH_BODY else "")


def _opened(entry: Entry) -> Entry:
    """Return the entry once a drain is open: too old to be sent, or owed again."""
    if entry.outcome is Outcome.OWED:
        return entry if entry.may_leave else entry._replace(outcome=Outcome.UNCLEAR)
    is_open = entry.outcome is Outcome.UNCLEAR or (entry.outcome is Outcome.REFUSED and entry.may is May.MAYBE)
    is_open = is_open or (entry.outcome is Outcome.DENIED and entry.observed not in _GONE)
    return entry._replace(outcome=Outcome.OWED) if is_open and entry.may_leave and not entry.is_ignored else entry


def _claimed(entry: Entry, requests: int) -> Entry:
    """Return the entry after so many requests were begun whose answers are not recorded."""
    before = entry.attempts
    now = before._replace(requests=min(before.requests + requests, 2), granted=None)
    return entry._replace(attempts=now, is_old=False)


def _aged(entry: Entry) -> Entry:
    """Return the entry once the service may have forgotten every key."""
    decisions = tuple(one._replace(is_old=bool(one.attempts.requests)) for one in entry.decisions)
    return entry._replace(is_old=bool(entry.attempts.requests), decisions=decisions)


def undone(entry: Entry) -> Entry | None:
    """Take the last decision back, from what the tables have; None if that is too late."""
    if not entry.decisions:
        return None
    *rest, last = entry.decisions
    back = entry._replace(decisions=tuple(rest))
    if last.option is Decision.IGNORE:
        is_given_up = last.outcome is Outcome.OWED and entry.outcome is Outcome.UNCLEAR and entry.attempts == last.now
        return back._replace(outcome=Outcome.OWED) if is_given_up else back
    is_next = last.after is Outcome.OWED and entry.revision == last.revision + 1
    if entry.attempts != last.now or entry.revision != last.revision + is_next or entry.outcome is not last.after:
        return None
    back = back._replace(outcome=last.outcome, revision=last.revision, has_event=last.has_event)
    if is_next:
        back = back._replace(attempts=last.attempts, is_old=last.is_old)
    elif last.option in (Decision.RESEND, Decision.RETRY):
        back = back._replace(attempts=entry.attempts._replace(granted=None))
    asked = str(entry.observed) if entry.observed in _GONE else entry.wish
    if last.option is Decision.RELEASE:
        back = back._replace(body="").seen(Observed.HELD, entry.body)
    elif last.option is Decision.APPLIED or (is_next and last.outcome is Outcome.REMOVED):
        back = back._replace(body=last.body).asked(asked)
    elif last.option is Decision.REMOVED:
        back = back.asked(last.wish if entry.observed is Observed.SAME else asked)
    return back


def _broken(before: World, step: Step, character: Character) -> str:
    """Return the promise that a step breaks, "" if none."""
    world, entry, was = step.world, step.world.entry, before.entry
    if sum(world.events) > 1 + world.risked:
        return "more events than one and those that a person has risked"
    if entry is None:
        return "an entry is forgotten whose event exists" if any(world.events) else ""
    constraints = {
        "an event id if and only if created": (entry.outcome is Outcome.CREATED) == entry.has_event
        or entry.outcome is Outcome.REMOVED,
        "held with its payload": (entry.observed is Observed.HELD) == (entry.outcome is Outcome.HELD),
        "returned only where removed": entry.observed is not Observed.RETURNED or entry.outcome is Outcome.REMOVED,
        "an observed body where one is due": (entry.observed in _WITH_BODY) == bool(entry.wanted),
        "a body, unless held or moved": bool(entry.body) == (entry.outcome not in (Outcome.HELD, Outcome.MOVED)),
        "refused says that nothing was created": not (
            facts.state_of(entry.outcome, entry.attempts.tried) is EntryState.REFUSED and entry.attempts.requests
        ),
    }
    wrong = [name for name, holds in constraints.items() if not holds]
    if wrong:
        return f"not {wrong[0]}"
    is_by_person = step.name in _OPTIONS or step.name == "undo"
    if was is None or is_by_person or was.has_event or character.creates_and_limits or not was.body:
        return ""
    is_changed = entry.revision == was.revision and entry.body != was.body and before.events[was.revision]
    return "the body changes under a key while its event exists" if is_changed else ""


def check(character: Character, depth: int, most: int, rules: Rules | None = None) -> Checker:
    """Explore one service from both starts: a new row, and a held one."""
    checker = Checker(character, rules or Rules())
    for is_held in (False, True):
        checker.explore(depth, most, is_held=is_held)
    return checker


def main(depth: int = 5, most: int = 6_000) -> int:
    """Print the states explored, and what is broken; return the exit code."""
    broken, states = dict[str, list[str]](), 0
    for character in CHARACTERS:
        checker = Checker(character, Rules())
        states += sum(checker.explore(depth, most, is_held=is_held) for is_held in (False, True))
        for what, traces in checker.broken.items():
            broken.setdefault(what, []).extend(traces)
    print(f"{states} states of {len(CHARACTERS)} services, {verdict_on.cache_info().currsize} calls")
    for what, traces in broken.items():
        print(f"{len(traces)} x {what}", *sorted(traces, key=len)[:2], sep="\n  ")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
