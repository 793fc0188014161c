"""From errors and accounts to the one word and the exit code that scripts rely on."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from unit.pipelines.feed_files import feed

from connectors import errors
from connectors.errors import PausedError
from connectors.sources.contract import MissingColumnsError, SourceRefusedError, SourceUnavailableError
from mappings.errors import ConfigError, MappingFileError, SyncError
from mappings.row_key import RowKey
from mappings.spec.feed import FeedMapping
from pipelines.run.outcome import BrakeError, ExitCode, outcome_of
from pipelines.run.publish import PublishReport, outcome_of_publish
from pipelines.run.signals import InterruptedRunError
from state.enums import DriftKind
from state.errors import HeldByAnotherError, LeaseLostError
from state.ledger.accounts import ImbalanceError, PublishAccount
from state.ledger.gate import GateClosedError
from state.ledger.standing import OpenRows, Standing

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ERRORS: list[tuple[SyncError, int]] = [
    (ConfigError("x"), 2),
    (MappingFileError(Path("feed.yaml"), ()), 2),
    (errors.BaseUrlError("x"), 2),
    (errors.KeyFormatError("x"), 2),
    (errors.NotTheServiceError("x"), 2),
    (errors.RedirectRefusedError("x"), 2),
    (SourceRefusedError("x"), 2),
    (MissingColumnsError("events.csv", ["GENRE"], ["GENRES"]), 5),
    (errors.KeyRefusedError("x"), 3),
    (errors.ScopeMissingError("x"), 3),
    (HeldByAnotherError(holder="run 1", since=NOW, host="here", pid=1), 4),
    (BrakeError("x", brakes=("rejected",)), 5),
    (PausedError("x", resume_at=NOW), 6),
    (errors.ServiceUnavailableError("x"), 6),
    (SourceUnavailableError("x"), 6),
    (LeaseLostError("x"), 4),
    (InterruptedRunError("x"), 130),
    (GateClosedError("x"), 2),
    (ImbalanceError("x"), 1),
    (SyncError("x"), 1),
]
README = (Path(__file__).parents[3] / "README.md").read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    ("error", "code"), ERRORS, ids=lambda value: type(value).__name__ if isinstance(value, SyncError) else ""
)
def test_every_error_has_its_exit_code_and_its_outcome_beside_it_in_the_readme(error: SyncError, code: int) -> None:
    outcome = outcome_of(error)
    assert (outcome.exit_code, outcome.message, outcome.hint) == (code, str(error), error.hint)
    (line,) = (line for line in README if line.startswith(f"| {code} | `"))
    assert f"`{outcome.name}`" in line


@pytest.fixture
def mapping(tmp_path: Path) -> FeedMapping:
    return feed(tmp_path)


def rows(count: int, *first: str) -> OpenRows:
    return OpenRows(count, tuple(map(RowKey, first)))


@pytest.mark.parametrize(
    ("standing", "code", "words"),
    [
        (Standing(), 0, []),
        (Standing(refused=rows(2), asked=4), 0, ["2 refused", "within"]),
        (Standing(refused=rows(5), asked=100), 0, ["5 refused", "within"]),
        (Standing(refused=rows(6), asked=100), 1, ["6 refused", "more than the feed allows"]),
        (Standing(refused=rows(3), asked=3), 1, ["3 refused"]),
        (Standing(refused=rows(60, "a", "b", "c"), asked=60), 1, ["60 (a, b, c, …) refused"]),
        (Standing(conflict=rows(1)), 1, ["1 in conflict"]),
        (Standing(blocked=rows(1)), 1, ["1 blocked"]),
        (Standing(uncertain=rows(1)), 1, ["1 uncertain"]),
        (Standing(conflict=rows(1), blocked=rows(2), held=rows(1, "x")), 1, ["1 in conflict", "2 blocked", "1 (x) held back"]),
        (Standing(held=rows(1, "x")), 0, ["1 (x) held back"]),
        (Standing(drift=rows(2, "x", "y"), drifts={DriftKind.CANCELLED: 1}), 0, ["2 (x, y) changed", "1 cancelled"]),
        (Standing(vanished=rows(4, "x", "y", "z")), 0, ["4 (x, y, z, …) gone"]),
        (Standing(earlier=rows(1, "x")), 0, ["1 (x) with earlier events"]),
        (Standing(warning=rows(1, "x")), 0, ["1 (x) used with a warning"]),
        (Standing(unconfirmed=rows(1, "a")), 0, ["eventsync reconcile town-hall"]),
        (Standing(conflict=rows(1, "a b")), 1, ["1 (a b) in conflict", "eventsync resolve town-hall 'a b'"]),
        (
            Standing(forgotten=rows(5, "c", "d", "e")),
            1,
            ["5 (c, d, e, …) uncertain for so long", "eventsync reconcile town-hall"],
        ),
    ],
)
def test_the_exit_code_follows_from_what_stands_at_the_end_of_a_run(
    mapping: FeedMapping, standing: Standing, code: int, words: list[str]
) -> None:
    outcome = outcome_of_publish(PublishReport(PublishAccount(new=9, delivered=9), None, 1.0, standing=standing), mapping)
    assert outcome.exit_code == code
    assert [word for word in words if word not in outcome.text] == []
    assert ("eventsync rows town-hall" in outcome.hint) == bool(standing.rows)


def test_the_cause_of_an_early_end_goes_before_what_it_left_behind(mapping: FeedMapping) -> None:
    account = PublishAccount(new=2, conflict=1, pending=1)
    outcome = outcome_of_publish(PublishReport(account, PausedError("come back later", resume_at=NOW), 1.0), mapping)
    assert (outcome.exit_code, outcome.message) == (ExitCode.LATER, "come back later")
