"""The person beside the worker: what is decided about rows, as `resolve` and `retry` write it down, and at whose risk."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from property.delivery_desk import Worker
from property.model_service import Death

from mappings.row_key import RowKey
from state.enums import EntryState
from state.ledger.choices import Change, Instruction, NotPossibleError, Option
from state.ledger.decisions import EventTakenError
from state.ledger.standing import RowRecord

ANA = "ana@desk"


@dataclass
class Person:
    """Decides about rows of one feed. What each decision has brought is remembered by row key."""

    worker: Worker
    next_keys: Counter[str] = field(default_factory=Counter)
    """How often a row was let out under a further key: the service had said that its key was used, or denied access to it."""
    forgotten: set[str] = field(default_factory=set)
    """Rows sent again under a key that the service may have forgotten."""
    named: dict[str, int] = field(default_factory=dict)
    """The event that was named for a row."""

    def retry(self) -> None:
        """Let all rows that were turned away be sent again."""
        self.worker.decide(ANA, lambda decisions: decisions.retry())

    def decide(self, row_key: str, choice: Instruction, death: Death) -> bool:
        """Decide about one row; return whether anything has changed. The command may be killed, at whatever instant.

        What may go wrong must be told beforehand: only then is it at the person's risk.
        """
        before = self.worker.rows().get(row_key)
        if before is None:
            return False
        told = self.worker.propose(row_key, choice)
        try:
            self.worker.decide(ANA, lambda decisions: decisions.resolve([RowKey(row_key)], choice), death)
        except NotPossibleError:
            assert told is None, f"{told} was promised for {before}"
            return False
        except EventTakenError:
            return False
        after = self.worker.rows()[row_key]
        if after == before:
            return False
        assert isinstance(told, Change), f"{before} became {after}, and {told} was told"
        self._remember(after, told, choice)
        if choice.option is not Option.UNDO:  # which goes back one decision further
            again = self.worker.propose(row_key, choice)
            assert not isinstance(again, Change), f"{choice} said twice is done twice: {before}, {after}"
        return True

    def take_all_back(self) -> None:
        """List again whatever was set aside."""
        for row in self.worker.rows().values():
            while self.worker.rows()[row.row_key].is_set_aside:
                assert self.decide(row.row_key, Instruction(Option.UNDO), Death()), row

    def _remember(self, after: RowRecord, change: Change, choice: Instruction) -> None:  # one arm per case
        match choice.option:
            case Option.RESEND if change.is_next_revision or (change.risk and after.is_denied):
                assert change.risk
                if after.unanswered_at is not None:
                    self.forgotten.add(after.row_key)
                self.next_keys[after.row_key] += 1
            case Option.RESEND if change.risk:
                self.forgotten.add(after.row_key)
            case Option.EVENT_ID:
                self.named[after.row_key] = choice.event_id
                assert (after.state, after.event_id) == (EntryState.DELIVERED, choice.event_id)
            case Option.IGNORE:
                assert after.is_set_aside
            case Option.UNDO:
                self.named.pop(after.row_key, None)
            case Option.RESEND | Option.RELEASE:
                assert after.state is EntryState.PENDING
            case Option.APPLIED:
                assert after.drift_body is None
            case Option.SAME_AS | Option.REMOVED:
                raise AssertionError(f"nobody chooses {choice} here")
