"""The brakes: checks of a finished stage before anything is sent, each with its result as a sentence; and the gate they close."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mappings.outcome import shown_place
from mappings.reasons import Reason, ReasonCode
from mappings.spec.feed import Brakes, FeedMapping
from mappings.strict import written
from pipelines.run.options import BRAKE_TEXTS, BrakeName, RunOptions
from pipelines.run.outcome import BrakeError
from state.ledger.accounts import Alongside, BrakeInputs, StageReport, place_of
from state.ledger.gate import closed
from state.ledger.ledger import Ledger

HISTORY_THAT_COUNTS = 20
"""A feed with fewer known rows, or fewer that changed, has too little history to compare with."""
READS_OF_A_HABIT = 2
"""After this many earlier reads that replaced as many rows and were sent, replacing is normal for the feed (a weekly programme).
"""
AGREEING = 3
"""Fewer rows than this that resemble others, or that a rule leaves out, trip no brake."""
NAMED = 3
"""Likely copies that a result names; `eventsync rows` lists all."""
_NUMBERS = re.compile(r"(?<!\d)(\d\d?)([./-])(\d\d?)\2\d")
"""Day and month, in either order, before a year."""
_ROUNDING = 1e-9
"""Tolerance for shares, which are binary fractions: 30 % of 10 must not be a little less than 3."""


@dataclass(frozen=True, slots=True)
class BrakeResult:
    """The result of one brake. `measured` and `allowed` are shares (0 to 1) or counts, as `sentence` shows.

    `step`: what to do if it trips, and what accepting it does.
    """

    name: BrakeName
    is_tripped: bool
    is_accepted: bool
    measured: float
    allowed: float
    sentence: str
    step: str

    @property
    def stops(self) -> bool:
        """Whether this result stops the run before it publishes."""
        return self.is_tripped and not self.is_accepted


def check_brakes(report: StageReport, limits: Brakes, accepted: tuple[BrakeName, ...], feed: str) -> tuple[BrakeResult, ...]:
    """Check every brake after a stage of a feed, including those that a person accepted."""
    checks = (_rejected, _shrink, _left_out, _new, _copies, _scope, _keys, _changed)
    return tuple(
        BrakeResult(name, tripped, name in accepted, measured, allowed, sentence, _step(name, report, feed))
        for name, tripped, measured, allowed, sentence in (check(report, limits) for check in checks)
    )


_Result = tuple[BrakeName, bool, float, float, str]


def _rejected(report: StageReport, limits: Brakes) -> _Result:
    """Trip if more rows are rejected than allowed; a row that gives several events counts once."""
    counted = report.rows if report.rows is not None else report.account
    rows, rejected = counted.wanted, counted.rejected
    share = rejected / rows if rows else 0.0
    tripped = _is_beyond(rejected, rows, limits.rejected) and rejected >= limits.rejected_at_least
    allowed = _allowed(limits.rejected)
    few = limits.rejected_at_least - 1
    patience = f"{allowed:.1%}" + (f", and up to {_rows(few)} in any case" if few else "")
    sentence = f"{written(rejected)} of {written(rows)} rows rejected ({share:.1%}; the feed allows {patience})"
    if swapped := _swapped(report):
        sentence += f"; {swapped}: the order of day and month seems to have changed"
    return "rejected", tripped, share, allowed, sentence


def _swapped(report: StageReport) -> str:
    """Return how many of the first rejected cells of a column have day and month in the other order, "" if not most of them."""
    orders: dict[str, list[str]] = {}
    for reason in (one for row in report.rejections for one in row.reasons if one.code is ReasonCode.NOT_A_DATE and one.column):
        orders.setdefault(reason.column, []).append(_other_order(reason))
    for column, found in orders.items():
        order = max(found, key=found.count)
        if order and found.count(order) > max(len(found) / 2, 1):
            return f"{found.count(order)} of the first {len(found)} rejected cells of {column} fit {order}"
    return ""


def _other_order(reason: Reason) -> str:
    """Return the order of day and month that a refused date has, "" if it is the mapping's, or cannot be known."""
    examples = reason.particulars.get("examples", ())
    text = _NUMBERS.search(reason.value or reason.found)
    for example in map(_NUMBERS.search, map(str, examples if isinstance(examples, tuple | list) else ())):
        if text and example and text[2] == example[2]:
            is_day_first, is_month_first = int(text[1]) > 12 >= int(text[3]), int(text[3]) > 12 >= int(text[1])
            if is_day_first and int(example[3]) > 12:
                return "day-first"
            if is_month_first and int(example[1]) > 12:
                return "month-first"
    return ""


def _shrink(report: BrakeInputs, limits: Brakes) -> _Result:
    """Trip if a full read lost more than the allowed share of rows, or everything; rows known only from partial reads do not
    count as earlier ones.
    """
    now = report.account.present
    before = (report.last_whole_read if report.last_whole_read is not None or now else report.known_before) or 0
    # Partners delete past events: that is no loss, unless nothing is left.
    lost = max(before - now - report.past_rows, 0) if report.is_whole else 0
    is_empty = report.is_whole and now == 0 and before > 0
    tripped = limits.shrink is not None and (is_empty or _is_beyond(lost, before, limits.shrink))
    over = f", {report.past_rows} of them over by now" if report.past_rows else ""
    sentence = f"{_rows(now)} read, " + (f"{before} in the read before{over}" if before else "no earlier read to compare with")
    return "shrink", tripped, lost / before if before else 0.0, _allowed(limits.shrink), sentence


def _left_out(report: BrakeInputs, limits: Brakes) -> _Result:
    """Trip if rules newly leave out more than the allowed share of upcoming events, as after a partner renamed a word."""
    count, rows = sum(report.left_out.values()), report.to_come
    tripped = count >= AGREEING and _is_beyond(count, rows, limits.left_out)
    named = ", ".join(f"{rule} leaves out {number}" for rule, number in report.left_out.items())
    sentence = f"{named} of {rows} delivered rows with upcoming events" if named else "no rule newly leaves out many rows"
    return "left_out", tripped, count / rows if rows else 0.0, _allowed(limits.left_out), sentence


def _new(report: StageReport, limits: Brakes) -> _Result:
    """Trip if new rows replace or far outnumber the known ones (a partner's ids have changed).

    Rows that an earlier run staged and no run has sent still count as new. A feed whose earlier reads replaced as many rows, and
    were sent, is excused from that part only.
    """
    known, new, wanted = report.known_before, report.account.new - report.restaged + report.waiting, report.account.wanted
    if report.is_marking or not report.is_whole:
        gone = report.vanished
    else:  # without marks, estimate from the read's length how many known rows are missing
        gone = min(max((report.last_whole_read or 0) - (report.account.present - new), 0), known)
    # A full read can only lack rows that were in the source before it, not those that vanished long ago.
    stood = report.met + gone + report.past if report.is_whole else known
    is_replacing = gone > new / 2 and report.replaced_before < READS_OF_A_HABIT
    is_still_braked = report.waiting > 0 and "new" in report.stood
    is_flood = _is_beyond(new, wanted, limits.new) and (new > 2 * stood or is_replacing or is_still_braked)
    is_alike = report.alike >= AGREEING and report.alike > new / 2 and limits.new is not None
    is_usual = max(report.replaced_before, report.alike_before) >= READS_OF_A_HABIT
    tripped = (known >= HISTORY_THAT_COUNTS and is_flood) or (is_alike and not is_usual)
    sentence = f"{new} of {wanted} rows never seen before, {_beside(report, gone)}{_named(report)}"
    if is_alike:
        agree = "equal missing rows in two of title, start and place: dates, titles or keys may have changed"
        sentence += f"; {report.alike} of the new rows {agree}"
    return "new", tripped, new / wanted if wanted else 0.0, _allowed(limits.new), sentence


def _beside(report: BrakeInputs, gone: int) -> str:
    """Return what happened to the known rows, as part of the sentence of the brake `new`."""
    known, met = report.known_before, report.met
    if not report.is_whole or not known:
        return f"in addition to {known} known ones"
    if known == 1 <= met:
        return "the one known row is still in the source"
    still = "all" if met >= known else str(met or "none")
    usual = ", as many as in earlier reads" if report.replaced_before >= READS_OF_A_HABIT else ""
    lacking = f" ({gone} removed since the last read{usual})" if gone else ""
    return f"{still} of the {known} known ones {'is' if still in {'none', '1'} else 'are'} still in the source{lacking}"


def _copies(report: StageReport, _limits: Brakes) -> _Result:
    elsewhere = report.alongside.held if report.alongside else 0
    held, new = max(report.account.held - report.ignored - elsewhere, 0), report.account.new
    share = held / (held + new) if held else 0.0
    one, many = "looks like a copy of an event sent under another key", "look like copies of events sent under other keys"
    others = f"{new:,} {'does' if new == 1 else 'do'} not"
    sentence = f"{_rows(held)} {many if held > 1 else one}, {others}{_named(report)}" if held else f"no row {one}"
    return "copies", held >= HISTORY_THAT_COUNTS and share > 0.5, share, 0.5, sentence


def _scope(report: BrakeInputs, _limits: Brakes) -> _Result:
    """Trip if a feed that never delivered has rows that another feed or namespace delivers: it was renamed, or lost its
    namespace.
    """
    found = report.alongside
    if found is None:
        return "scope", False, 0.0, 0.5, "no other feed or namespace of the service delivers these rows"
    return "scope", True, found.known / found.rows, 0.5, describe_alongside(found)


def describe_alongside(found: Alongside) -> str:
    """Return which feed or namespace knows the rows already."""
    where = " ".join(filter(None, (found.feed and f"feed {found.feed}", found.namespace and f"namespace {found.namespace}")))
    return f"{found.known} of {found.rows} rows are known to {where}, and would be delivered twice"


def _keys(report: BrakeInputs, _limits: Brakes) -> _Result:
    sentence = "the definition of the key is unchanged"
    if report.has_new_keys:
        sentence = "the mapping's `key`, or a value it uses, has changed: every row with a new key would be sent again"
    return "keys", report.has_new_keys, float(report.has_new_keys), 0.0, sentence


def _changed(report: BrakeInputs, limits: Brakes) -> _Result:
    """Trip if more than the allowed share of upcoming events newly differ in the same field: a column was swapped, or a format
    has changed, so that the new rows are probably wrong too.
    """
    field, count = max(report.changed.items(), key=lambda each: each[1], default=("", 0))
    tripped = count >= HISTORY_THAT_COUNTS and _is_beyond(count, report.to_come, limits.changed)
    sentence = f"{count} of {report.to_come} delivered rows with upcoming events have changed in {field}"
    sentence = sentence if field else "no field has changed in many delivered rows"
    return "changed", tripped, count / report.to_come if report.to_come else 0.0, _allowed(limits.changed), sentence


def _step(name: BrakeName, report: StageReport, feed: str) -> str:
    """Return what to do if a brake stops a feed, with what accepting it does in numbers."""
    account, resolve = report.account, f"`eventsync resolve {feed} --state held --same-as`"
    accept = f"`eventsync run {feed} --accept {name}`"
    count = max(account.new, account.new - report.restaged + report.waiting)
    sends = f"({_rows(count)} will be sent" if count else "(nothing new will be sent"
    anyway = f"; or send the good rows anyway: {accept} {sends})" if count else f"; {accept} would send nothing new"
    if count and _swapped(report):
        anyway = f"; {accept} sends rows whose day and month are probably swapped, too {sends})"
    new = f"; {resolve} gives held rows their events" if account.held else ""
    again = f", {report.alike} of them probably again" if report.alike else ""
    correct, correct_or = "correct the source or the mapping and run again", "or, if the change is meant"
    steps: dict[BrakeName, str] = {
        "rejected": f"{correct}{anyway}",
        "shrink": f"{correct}; or, if this is all: {accept} {sends}, and the next read is compared with this one)",
        "left_out": f"{correct}; {correct_or}: {accept} {sends}, {_rows(sum(report.left_out.values()))} listed as vanished)",
        "new": f"{correct}{new}; or, if these are new events: {accept} {sends}{again})",
        "copies": f"{resolve} gives held rows their events, `--release` sends a row; or leave them held: {accept} {sends})",
        "scope": _reconnect(report.alongside, resolve, accept) if report.alongside else "",
        "keys": f"restore `key` and run again; {correct_or}: {accept} {sends}{' under new keys' if count else ''})",
        "changed": f"{correct}; {correct_or}: {accept} {sends})",
    }
    return steps[name]


def _reconnect(found: Alongside, resolve: str, accept: str) -> str:
    """Return how a feed goes on with events that another feed or namespace has delivered."""
    both = f"or, if both are to deliver these rows: {accept} ({_rows(found.known)} will be sent again)"
    ways = found.feed and f"put `feed: {found.feed}` back", found.namespace and f"set EVENTSYNC_NAMESPACE={found.namespace}"
    back = " and ".join(filter(None, ways))
    if found.namespace:
        return f"{back}; {both}"
    return f"if the feed was renamed or split: {resolve} gives the rows their events, and sends nothing; or {back}; {both}"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _named(report: StageReport) -> str:
    """Return the first likely copies as text, "" if there are none or the brake `scope` covers them."""
    if report.alongside or not report.held:
        return ""
    some = [
        f"{shown_place(row.origin)}: {row.row_key} looks like "
        + " ".join(filter(None, (row.twin_key, place_of(row.feed, row.namespace))))
        for row in report.held[:NAMED]
    ]
    more = report.account.held - report.ignored - len(some)
    return f" ({'; '.join(some)}{f'; and {more} more' if more > 0 else ''})"


def _is_beyond(part: float, whole: float, allowed: float | None) -> bool:
    """Return whether `part` is a greater share of `whole` than `allowed` (None: any share is allowed); equal is not greater."""
    return allowed is not None and part > allowed * whole + _ROUNDING


def _allowed(share: float | None) -> float:
    return 1.0 if share is None else share


def pass_the_gate(ledger: Ledger, mapping: FeedMapping, options: RunOptions, by: str) -> None:
    """Return if the last stage passed its brakes, or if this run accepts all brakes that stopped it.

    What was accepted for an earlier run is not accepted for this one.

    Raises:
        BrakeError: a brake holds the feed.
        GateClosedError: no stage has completed whose rows could be sent.
    """
    gate = ledger.gate()
    if gate.is_open and not gate.brakes:
        return
    if not gate.brakes:
        raise closed(gate)
    if set(gate.brakes) <= set(options.accept):
        ledger.open_gate(by)
        return
    report, feed, stopped = ledger.report_of(gate.run_id), mapping.feed, gate.reason.partition("; ")[0]
    results = check_brakes(report, mapping.publish.brakes, (), feed) if report else ()
    error = brake_error([result for result in results if result.name in gate.brakes], feed)
    message = ": ".join(filter(None, (f"nothing is sent: {stopped}", str(error))))
    raise BrakeError(message, brakes=gate.brakes, hint=error.hint or f"`eventsync run {feed}` reads the source again")


def possible_brakes(mapping: FeedMapping) -> tuple[BrakeName, ...]:
    """Return the brakes that a feed can trip: none that is off, nor the one of its rules if it has none."""
    limits = {name: getattr(mapping.publish.brakes, name, 1.0) for name in BRAKE_TEXTS}
    limits["left_out"] = limits["left_out"] if mapping.rows else None
    return tuple(name for name, limit in limits.items() if limit is not None)


def brake_error(stopping: Sequence[BrakeResult], feed: str) -> BrakeError:
    """Build the error for these brakes: for each what to do, and for several the command that accepts them for one run."""
    names = tuple(result.name for result in stopping)
    steps = [result.step for result in stopping]
    if len(names) > 1:
        steps.append(f"to accept all of them: `eventsync run {feed} {' '.join(f'--accept {name}' for name in names)}`")
    return BrakeError("; ".join(result.sentence for result in stopping), brakes=names, hint="; ".join(steps))
