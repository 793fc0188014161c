"""A run worker as a process of its own: each line on stdin names a run and the time at which it begins, a file the time since.

How the run ended is one JSON line on stdout; whoever gives the orders may kill the process meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from functools import partial
from pathlib import Path

import dagster as dg
from dagster._core.test_utils import freeze_time
from month.carrying import carry_out, definitions_at, settings_of
from month.clock import time_told_in

from pipelines.launcher import process_tags
from pipelines.telemetry.logs import configure_logs


def serve() -> None:
    """Announces itself with a line on stdout, then carries runs out until stdin ends."""
    settings = settings_of(os.environ)
    configure_logs(settings)
    with dg.DagsterInstance.from_config(str(Path(settings.dagster_home))) as instance:
        _say("ready")
        for line in sys.stdin:
            order = json.loads(line)
            at = datetime.fromisoformat(order["at"])
            with freeze_time(at):
                instance.add_run_tags(order["run_id"], process_tags())
                definitions = definitions_at(settings, partial(time_told_in, Path(sys.argv[1])))
                _say({"is_success": carry_out(instance, definitions, order["run_id"])})


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
