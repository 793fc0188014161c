"""One intent under way: what its attempts have shown so far, and what follows for the next one.

Asking, waiting and the verdict are `delivery`'s; what one answer means is `answers`'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from connectors.event_api.answers import Created, Failing, Foreign, KeyUsed, Lost, Meaning, RateLimited, Redirected, Unreadable
from connectors.retry import Random, RetryPolicy
from mappings.delivery import Answer, Intent

USED_KEY_ASKS = 4
"""How often a 409 is met at least before we take it that our earlier attempt will not be told to us."""
_SAME_FAILURES = 3
"""So many failures under one request id are one failure, kept under the key and told again."""
_SHORTEST_LOOK_S = 1.0
"""How long to wait at least where the service names a time to ask again: such asking is not bounded in number."""
_LONGEST_LOOK_S = 5.0
"""How long to wait at most between two questions about a bare 409: the answer is near, one way or the other."""
_LONG_AGO_S = 3600.0
"""After so long nothing that an earlier run sent is under way; its last request left some time after its claim."""


@dataclass(slots=True)
class Case:
    """What one call of `deliver` has seen. Times are the route's clock's, in seconds."""

    intent: Intent
    policy: RetryPolicy
    started: float
    attempts: int = 0
    copies: int = 0
    """How many attempts of this call may have created an event."""
    is_recorded: bool = True
    """The ledger counts the next attempt already: the claim's own, or one after which certainly nothing was created."""
    is_limited: bool = False
    """An attempt of this call was answered 429."""
    unanswered_since: float | None = None
    """When the first attempt began that may have been carried out without our seeing its answer: now, or in an earlier run."""
    under_way_until: float = 0.0
    """Until when such an attempt may still be at work in the service."""
    has_left: bool = False
    """Such an attempt is one of this call's."""
    used_key_answers: int = 0
    under_way_answers: int = 0
    same_failures: int = 0
    spent_s: float = 0.0
    """Of the budget: time at the service, and waits between attempts; not the time that pace and circuit breaker took."""
    last: Meaning | None = None

    def __post_init__(self) -> None:
        """Begin with what the ledger knows of earlier runs."""
        if self.intent.is_unanswered and not self.intent.is_limited:
            self.unanswered_since = self.started - self.intent.unanswered_s
            is_over = self.intent.quiet_s >= _LONG_AGO_S
            self.under_way_until = self.started + (0.0 if is_over else self.policy.at_work_s)

    @property
    def may_exist(self) -> bool:
        """Whether the event may have been created without our knowing. A 429 is no proof that it was not."""
        return self.unanswered_since is not None or self.intent.is_unanswered or self.is_limited

    def is_too_late(self, clock_s: float) -> bool:
        """Tell whether the service may have forgotten the key of an attempt that it may have carried out."""
        return self.unanswered_since is not None and clock_s - self.unanswered_since >= self.policy.key_memory_s

    def note(self, meaning: Meaning, began: float, *, is_acquainted: bool) -> None:
        """Note what came back of the attempt that began at `began`; a 4xx in strange words once `is_acquainted` is a failure."""
        if isinstance(meaning, RateLimited):
            self.is_limited = True
            return
        self.attempts += 1
        self._count_the_same(meaning)
        self.last = meaning
        match meaning:
            case Created():
                self._count_copy()
            case Failing() | Lost() | Unreadable() | Redirected():
                self._leave_unanswered(began)
            case Foreign() if is_acquainted:
                self._leave_unanswered(began)
            case KeyUsed(is_under_way=True):
                self.under_way_answers += 1
            case KeyUsed():
                self.used_key_answers += 1
            case _:
                pass

    @property
    def is_told_again(self) -> bool:
        """Whether the service keeps telling one failure: it stored it under the key, and will not try again."""
        return self.same_failures >= _SAME_FAILURES

    def is_used_up(self, clock_s: float) -> bool:
        """Tell whether a bare 409 explains nothing any more but itself: no attempt of ours can still be at work."""
        return not self.may_exist or (self.used_key_answers >= USED_KEY_ASKS and clock_s >= self.under_way_until)

    def is_stored_denial(self, answer: Answer) -> bool:
        """Whether denied access is, or may be, an earlier answer that the service stored under this row's key.

        It is where it has the earlier one's request id: then nothing else was ever stored there. Under another one it may be,
        or access is missing still and the event exists, made before our books began: only a person can take that risk.
        """
        denial = self.intent.denial
        if denial is None:
            return False
        return denial.is_repeated_by(answer) or (denial.is_resent and not self.has_left)

    def wait_s(self, met: object, policy: RetryPolicy, random: Random) -> float:
        """Return how long to wait after an answer that settles nothing. A 409 is asked about at growing intervals."""
        ours = policy.wait_s(self.attempts, random)
        match met:
            case KeyUsed(wait_s=float(asked_s)):
                return max(asked_s, _SHORTEST_LOOK_S)
            case KeyUsed(is_under_way=is_under_way):
                asks = self.used_key_answers + self.under_way_answers
                longest_s = self.policy.longest_wait_s if is_under_way else min(self.policy.longest_wait_s, _LONGEST_LOOK_S)
                return min(max(ours, self.policy.first_wait_s * 2.0 ** min(asks, 60)), longest_s)
            case _:
                return ours

    def is_spent(self, clock_s: float, next_wait_s: float) -> bool:
        """Tell whether to give up: attempts, time, or the service's memory of the key would be overrun.

        Asking about a bare 409 ends by itself, once our own attempt's time is over.
        """
        if self.is_too_late(clock_s + next_wait_s):
            return True
        if isinstance(self.last, KeyUsed) and not self.last.is_under_way and self.may_exist:
            return False
        counted = self.attempts - self.under_way_answers - self.used_key_answers
        return self.policy.is_spent(counted, self.spent_s, next_wait_s)

    def told(self, answer: Answer) -> Answer:
        """Return an answer for people: with what its repetition means, where the service keeps telling one failure."""
        if not self.is_told_again:
            return answer
        said = "the service stored this failure under the row's key and repeats it; the event may exist: a person decides"
        return replace(answer, message=f"{said}: {answer.message}")

    def _count_copy(self) -> None:
        self.copies += 1
        self.is_recorded = False

    def _leave_unanswered(self, began: float) -> None:
        self._count_copy()
        self.has_left = True
        self.unanswered_since = began if self.unanswered_since is None else self.unanswered_since
        self.under_way_until = max(self.under_way_until, began + self.policy.at_work_s)

    def _count_the_same(self, meaning: Meaning) -> None:
        is_failure = isinstance(meaning, Failing) and bool(meaning.answer.request_id)
        is_same = isinstance(self.last, Failing) and self.last.answer.request_id == meaning.answer.request_id
        self.same_failures = (self.same_failures + 1 if is_same else 1) if is_failure else 0
