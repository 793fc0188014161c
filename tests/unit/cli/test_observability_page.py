"""docs/observability.md and the alerts beside it name what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.cli.conftest import Desk

from pipelines.cli.app import VERBS
from pipelines.telemetry.metrics import GAUGES
from pipelines.telemetry.tracing import Wanted, wanted_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "observability.md").read_text("utf-8")
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "eventsync.rules.yaml").read_text("utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]


def test_the_table_of_numbers_is_what_the_code_says() -> None:
    table = PAGE.partition("| number | what it tells |")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)) == GAUGES


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_is_over_numbers_that_there_are_and_says_which_command_helps(alert: dict[str, Any]) -> None:
    named, words = set(re.findall(r"eventsync_\w+", alert["expr"])), alert["annotations"]["help"].split()
    assert named
    assert named <= GAUGES.keys()
    assert (words[0], words[1] in VERBS) == ("eventsync", True)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`?\b(OTEL_[A-Z_]+)", PAGE))))
def test_the_variables_that_the_page_names_are_heeded_or_the_sdks_own(name: str) -> None:
    known = pytest.importorskip("opentelemetry.sdk.environment_variables")
    assert name in vars(known) or name in {"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"}


def test_what_the_page_says_of_variables_is_so() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert wanted_of({}) == Wanted()
    assert wanted_of(endpoint) == Wanted("otlp", "otlp")
    assert wanted_of({**endpoint, "OTEL_SDK_DISABLED": "true"}) == Wanted()
    assert wanted_of({"OTEL_TRACES_EXPORTER": "console"}) == Wanted("console", "none")
    assert wanted_of({**endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).problems
    assert wanted_of({**endpoint, "OTEL_METRICS_EXPORTER": "prometheus"}).traces == "otlp"
    assert "`EVENTSYNC_TRACE_REQUESTS`" in PAGE


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq here")
def test_the_questions_that_the_page_asks_of_documents_have_answers(desk: Desk) -> None:
    shown = re.findall(r"^eventsync (.*) \| jq (?:-r )?'([^']+)'", PAGE, re.MULTILINE)
    with desk.service():
        desk.sync(code=0)
        said = {words: desk.run(*words.split()).out for words, _ in sorted(shown, key=lambda one: not one[0].startswith("run "))}
    answers = {
        words: subprocess.run(["jq", "-r", question], input=said[words], capture_output=True, text=True, check=True).stdout
        for words, question in shown
    }
    assert len(shown) == 3
    assert answers["status --json"] == "", "nobody has conflicts"
    assert '"outcome": "done"' in answers["run --all --no-dagster --json"]
    assert float(answers["runs --limit 50 --json"]) >= 0
