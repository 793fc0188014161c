"""When a feed runs by itself, as its file says it: what is no moment at all is reported as the file is read."""

from __future__ import annotations

import pytest
from dagster._utils.schedules import is_valid_cron_string
from pydantic import ValidationError

from mappings.spec.feed import Schedule


@pytest.mark.parametrize(
    ("cron", "told"),
    [
        ("0 0 31 2 *", '"31" is a day that never comes'),
        ("0 0 30 feb *", '"30" is a day that never comes'),
        ("0 0 31 4,6,sep *", '"31" is a day that never comes'),
        ("*/90 * * * *", '"*/90" is not a minute'),
        ("0 0 * mon *", '"mon" is not a month'),
        ("0 0 * * jan", '"jan" is not a weekday'),
        ("@daily", '"@daily" is not a cron line'),
    ],
)
def test_a_cron_line_that_no_clock_keeps_is_a_mistake(cron: str, told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Schedule.model_validate({"cron": cron})
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "cron",
    ["15 */2 * * *", "0 22-6 * * *", "0 6 29 2 *", "0 0 31 2,3 *", "*/5 8-18 * * mon-fri", "0 6 * jan,jul 7", "0 0 28-31 2 *"],
)
def test_every_other_one_is_kept_by_dagster_too(cron: str) -> None:
    assert is_valid_cron_string(Schedule.model_validate({"cron": cron}).cron)


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ({"cron": "0 6 * * *", "timezone": "Europe/Lisbon"}, "0 6 * * * (Europe/Lisbon)"),
        ({"look_every": "5m"}, "when changed (looked at every 300 s)"),
        ({"cron": "0 6 * * *", "look_every": "1h"}, "0 6 * * * (UTC), when changed (looked at every 3600 s)"),
    ],
)
def test_a_schedule_is_told_in_words(schedule: dict[str, str], told: str) -> None:
    assert str(Schedule.model_validate(schedule)) == told
