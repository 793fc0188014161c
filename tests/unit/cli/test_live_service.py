"""What the answer to an event without any field proves of the key, and what is said where it proves nothing."""

from __future__ import annotations

import pytest

from connectors.event_api.answers import AnswerKind, Meaning
from connectors.event_api.lists import Classifications
from mappings.delivery import Answer
from mappings.yaml.loader import load_feed
from pipelines.cli.check_live import of_service
from pipelines.cli.findings import LiveFinding
from pipelines.cli.service_lists import ServiceAnswers
from pipelines.settings import PACKAGED_FEEDS

MAPPING = load_feed(PACKAGED_FEEDS / "lisbon-agenda.yaml")


def _scopes(probe: Meaning | None) -> LiveFinding:
    lists = ServiceAnswers({"lisbon-agenda": 7}, Classifications("2026-03-02", frozenset()), key_tail="…0042", probe=probe)
    return next(one for one in of_service("https://events.example.org", lists, MAPPING) if one.asked == "scopes")


_REFUSED = Answer(400, "invalid_request", field="title", issue="is required")
_CREATED = "created event 4711 from an event without any field: delete it by hand"


@pytest.mark.parametrize(
    ("probe", "severity", "exit_code", "says"),
    [
        (None, "ok", 0, "`--probe` sends an event without any field"),
        (Meaning(AnswerKind.REFUSED, _REFUSED), "ok", 0, "proves `events:create` unless"),
        (Meaning(AnswerKind.SCOPE_MISSING, Answer(403, "insufficient_scope")), "error", 3, "the key …0042 may not create events"),
        (Meaning(AnswerKind.NO_ACCESS, Answer(403, "forbidden")), "error", 3, "may not create events"),
        (Meaning(AnswerKind.KEY_REFUSED, Answer(401, "invalid_api_key")), "error", 3, "refused the API key …0042"),
        (Meaning(AnswerKind.READ, Answer(201), value=4711), "error", 1, _CREATED),
        (Meaning(AnswerKind.FOREIGN, Answer(400, message="text/html, 12 bytes")), "warning", 0, "could not be told: 400"),
        (Meaning(AnswerKind.FAILING, Answer(500, "internal_error")), "warning", 0, "could not be told: 500"),
        (Meaning(AnswerKind.LOST, Answer(0, "timeout", "no whole answer in time")), "warning", 0, "no whole answer in time"),
    ],
)
def test_a_probe_is_told_for_what_it_proves(probe: Meaning | None, severity: str, exit_code: int, says: str) -> None:
    finding = _scopes(probe)
    assert (finding.severity, finding.ok, finding.exit_code) == (severity, severity != "error", exit_code)
    assert says in finding.told
