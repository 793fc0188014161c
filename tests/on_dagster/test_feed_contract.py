"""A service whose page announces refusals, as Dagster sees it: a warning that blocks nothing, or a run that stops early."""

from __future__ import annotations

import dagster as dg
from on_dagster.desk import Desk, checks_of, failure_of, metadata_of


def test_an_announced_refusal_is_a_warning_of_its_own_check_and_blocks_nothing(desk: Desk) -> None:
    desk.switch(contract="new_required_field", contract_rules="as_specified")
    result = desk.run()
    assert result.success
    check = checks_of(result)["contract"]
    assert (check.passed, check.severity, check.blocking) == (False, dg.AssetCheckSeverity.WARN, False)
    assert "`organizer` is required" in (check.description or "")
    assert len(desk.events()) == 10
    (notice,) = desk.book(result.run_id).notices
    assert "`organizer` is required" in notice


def test_a_refusal_that_comes_as_announced_fails_the_run_after_one_row(desk: Desk) -> None:
    desk.switch(contract="new_required_field")
    result = desk.run()
    description, told = failure_of(result)
    assert (told["outcome"], told["exit_code"]) == ("stopped by a brake", 5)
    assert "9 rows were not sent" in description
    assert desk.posts() == 1
    assert desk.book(result.run_id).notices


def test_a_changed_list_of_classifications_is_shown_with_what_was_staged(desk: Desk) -> None:
    assert "notices" not in metadata_of(desk.run(), "staged")
    desk.switch(classification_list="revised")
    notices = metadata_of(desk.run(), "staged")["notices"]
    assert "changed from 2026-03-02 to 2026-10-01" in str(notices.value)
