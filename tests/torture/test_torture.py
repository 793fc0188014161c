"""A short ordeal on each kind of state DB; `make torture` is the long one. It says which seed repeats it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from integration.desk import WarmStart
from postgres import Postgres
from torture.trial import Trial

KILLS = int(os.environ.get("EVENTSYNC_TEST_KILLS", "5"))
SEED = int(os.environ.get("EVENTSYNC_TEST_SEED", random.randrange(1_000_000)))
ROWS = 2_200

pytestmark = pytest.mark.slow(about_s=15)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_whatever_strikes_a_run_the_promises_hold(
    tmp_path: Path, warm: WarmStart, database: str, request: pytest.FixtureRequest
) -> None:
    print(f"EVENTSYNC_TEST_SEED={SEED} EVENTSYNC_TEST_KILLS={KILLS}")
    server: Postgres | None = request.getfixturevalue("postgres") if database == "postgresql" else None
    trial = Trial(KILLS, f"{SEED} {database}", server.fresh_url if server else None, rows=ROWS)
    trial.run(tmp_path, warm)

    assert trial.toll.met.total() == KILLS
    assert trial.toll.sums["feeds"] > 0
