"""What docs/authoring.md, mapping.md, report.md, state.md and observability.md show works, and says what they show."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.cli.conftest import Desk
from unit.shown_feeds import feeds_shown

from pipelines.cli.app import VERBS
from pipelines.cli.report import HEADINGS, MOST_LINES, MOST_TEXT, SectionName
from pipelines.metrics import GAUGES
from state.ledger.accounts import READS_COMPARED

DOCS = Path(__file__).parents[3] / "docs"
AUTHORING, MAPPING, REPORT, STATE = (
    (DOCS / f"{page}.md").read_text("utf-8") for page in ("authoring", "mapping", "report", "state")
)
FIRST = feeds_shown(MAPPING)[0]
SHOWN = re.findall(r"^```text\n(feeds/| field |agenda\.csv:)(.*?)^```", MAPPING, re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The words after `eventsync` of every command that the page shows."""
    lines = [shlex.split(line) for block in blocks(page, "sh") for line in block.splitlines()]
    assert {line[0] for line in lines} == {"eventsync"}
    return [words for _, *words in lines]


@pytest.fixture
def drafted(desk: Desk) -> Desk:
    """A desk at which the first command of docs/authoring.md was called."""
    (desk.folder / "agenda.csv").write_text(blocks(AUTHORING, "csv")[0], "utf-8")
    desk.run(*commands(AUTHORING)[0], code=0)
    return desk


@pytest.fixture
def first(desk: Desk) -> Desk:
    """A desk with the first feed of docs/mapping.md beside its file."""
    desk.mapping(FIRST.mapping, "town-agenda.yaml")
    (desk.folder / "feeds" / "agenda.csv").write_bytes(FIRST.files["agenda.csv"])
    return desk


def without(shown: Iterable[list[str]], *verbs: str) -> list[list[str]]:
    return [words for words in shown if words[0] not in verbs]


def test_the_draft_holds_the_lines_that_the_page_shows_and_every_further_command_of_it_answers(drafted: Desk) -> None:
    assert blocks(AUTHORING, "yaml")[0] in (drafted.folder / "feeds" / "lisbon-agenda.yaml").read_text("utf-8")
    for words in without(commands(AUTHORING)[1:], "run"):
        if "--live" not in words:
            drafted.run(*words, code=0)


def test_the_answers_that_the_page_shows_leave_nothing_to_fill_in(drafted: Desk) -> None:
    (drafted.folder / "answers.yaml").write_text(blocks(AUTHORING, "yaml")[1], "utf-8")
    with drafted.service():
        drafted.run(*commands(AUTHORING)[0], "--answers", "answers.yaml", "--force", code=0)
    assert "to be filled in" not in drafted.run("check", "lisbon-agenda", code=0).words


def test_every_command_of_the_guide_answers(first: Desk) -> None:
    for words in without(commands(MAPPING), "run", "sandbox"):
        with first.service() if "--live" in words else nullcontext():
            first.run(*words, code=0)


def _lines(text: str) -> list[str]:
    """Lines as words: a table is as wide as its screen."""
    return [" ".join(line.split()) for line in text.splitlines()]


def _shown(beginning: str) -> list[str]:
    return next(_lines(start + rest) for start, rest in SHOWN if start == beginning)


def test_a_mistake_is_told_as_the_page_shows(first: Desk) -> None:
    first.mapping(FIRST.mapping.replace("datetime", "datetme"), "town-agenda.yaml")
    said = _lines(first.run("check", "town-agenda").out)
    assert _shown("feeds/") == [line.removeprefix("error: ") for line in said if line][1:4]


EXPLAINED, PREVIEWED = ("explain", "town-agenda", "T1"), ("preview", "town-agenda")


@pytest.mark.parametrize(("words", "beginning"), [(EXPLAINED, " field "), (PREVIEWED, "agenda.csv:")])
def test_a_row_is_explained_and_rejected_as_the_page_shows(first: Desk, words: tuple[str, ...], beginning: str) -> None:
    said = _lines(first.run(*words).out)
    assert [line for line in _shown(beginning) if line not in said] == []


@pytest.mark.parametrize("page", [REPORT, STATE], ids=["report.md", "state.md"])
def test_every_command_about_a_feed_that_was_run_does_its_work(desk: Desk, page: str) -> None:
    with desk.service() as service:
        desk.sync(code=0)
        shown = page.replace("https://api.old.example", service.base_url).replace("lisbon-agenda", "town-hall")
        said = {" ".join(words): desk.run(*words) for words in commands(shown)}
    assert {words: one.err for words, one in said.items() if one.code} == {}
    assert len(said) >= 3


def test_the_pages_of_the_report_and_the_state_db_name_their_sections_and_bounds() -> None:
    assert re.findall(r"^\| ([A-Z][^|]*) \|", REPORT, re.MULTILINE) == [heading.title for heading in HEADINGS.values()]
    assert list(HEADINGS) == list(SectionName)
    assert f"{MOST_LINES:,} rows at most" in REPORT
    assert f"about {MOST_TEXT // 1_000_000} MB" in REPORT
    assert f"the last {READS_COMPARED} whole reads" in STATE


ROOT = Path(__file__).parents[3]
OBSERVABILITY = (ROOT / "docs" / "observability.md").read_text("utf-8")
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "eventsync.rules.yaml").read_text("utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_is_over_numbers_that_there_are_and_says_which_command_helps(alert: dict[str, Any]) -> None:
    named, words = set(re.findall(r"eventsync_\w+", alert["expr"])), alert["annotations"]["help"].split()
    assert named
    assert named <= GAUGES.keys()
    assert (words[0], words[1] in VERBS) == ("eventsync", True)


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq here")
def test_the_questions_that_the_page_asks_of_documents_have_answers(desk: Desk) -> None:
    shown = re.findall(r"^eventsync (.*) \| jq (?:-r )?'([^']+)'", OBSERVABILITY, re.MULTILINE)
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


def test_the_page_about_a_changed_contract_shows_what_the_command_says(desk: Desk) -> None:
    found = re.search(r"```console\n\$ eventsync (.*)\n([^`]*(?:`[^`]+`[^`]*)*?)```", (DOCS / "preflight.md").read_text("utf-8"))
    assert found is not None
    shutil.copytree(ROOT / "mappings", desk.folder / "mappings", ignore=shutil.ignore_patterns("*.py"))
    desk.monkeypatch.setenv("EVENTSYNC_FEEDS", "mappings/feeds")
    with desk.service() as service:
        desk.run("run", "lisbon-agenda", "--no-dagster", code=0)
        service.switch(contract="new_required_field")
        said = desk.run(*found[1].split(), code=2).out
    shown = re.sub(r"req_[0-9a-f]+", "req_41c7", said.replace(service.base_url, "http://127.0.0.1:8765"))
    assert shown.split() == found[2].split()
