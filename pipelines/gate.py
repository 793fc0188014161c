"""Between stage and publish: whether this run may send what is staged, and what is said where it may not.

What the brakes ask is `brakes`'; where the gate stands is kept by `state.gate`.
"""

from __future__ import annotations

from mappings.spec.feed import FeedMapping
from pipelines.options import RunOptions
from pipelines.outcomes import BrakeError
from pipelines.sync import Staged
from state.gate import closed
from state.ledger import Ledger


def pass_the_gate(ledger: Ledger, mapping: FeedMapping, options: RunOptions, by: str) -> None:
    """Let what is staged out, if the last stage was released, or if this run accepts everything that stopped it.

    What a person accepted for an earlier run is not accepted for this one.

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
    stopped, _, _ = gate.reason.partition("; ")
    raise BrakeError(
        f"nothing is sent: {stopped}",
        brakes=gate.brakes,
        hint=f"`eventsync status {mapping.feed}` tells why; once that is mended, `eventsync run {mapping.feed}` reads the source "
        f"again; in spite of that: `eventsync run {mapping.feed} --publish-only {_accepting(gate.brakes)}`",
    )


def raise_if_braked(staged: Staged, feed: str) -> None:
    """Go no further after a stage that brakes stopped. Raises `BrakeError`."""
    if staged.stopping:
        raise brake_error(staged, feed)


def brake_error(staged: Staged, feed: str) -> BrakeError:
    """Say which brakes stopped a finished stage, and how a person may pass them for one run."""
    names = tuple(verdict.name for verdict in staged.stopping)
    in_spite = f"`eventsync run {feed} {_accepting(names)}`"
    return BrakeError(
        "; ".join(verdict.sentence for verdict in staged.stopping),
        brakes=names,
        hint=f"mend the source or the mapping and run again; or send the good rows in spite of that: {in_spite}",
    )


def _accepting(brakes: tuple[str, ...]) -> str:
    return " ".join(f"--accept {name}" for name in brakes)
