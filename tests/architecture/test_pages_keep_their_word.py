"""What the pages for people name is there, what is generated from the code says what it does, and the site is whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from architecture.places import ROOT
from commands import every_command
from reference_pages.__main__ import file_name, generated_files, write_commands

from pipelines.cli.schema import DOCUMENTS
from pipelines.run.outcome import ExitCode

DOCS = ROOT / "docs"

README = (ROOT / "README.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in DOCS.glob("*.md")))
SESSION = "docs/screenshots/session.txt"
_SPAN = re.compile(r"`([^`\n]+)`")
_BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s#]+)[^)]*\)")
_COMMAND = re.compile(r"(?:^|\s)eventsync((?: +[^#\s]+)*)")
_TEST = re.compile(r"([\w/]+\.py)::(\w+)")
_VARIABLE = re.compile(r"\bEVENT(?:SYNC|_API)_[A-Z_]+\b")


def _shown(page: str) -> Iterator[str]:
    """Yield the lines of a page's shell blocks, and its code spans."""
    text = (ROOT / page).read_text("utf-8")
    for block in _BLOCK.findall(text):
        yield from block.splitlines()
    yield from _SPAN.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


@cache
def _commands() -> Mapping[str, set[str]]:
    """Every verb with the options that it takes; a verb of a group as `group verb`."""
    verbs = {name: {option for one in verb.params for option in one.opts} | {"--help"} for name, verb in every_command()}
    return {"state": {"--help"}, **verbs}


@pytest.mark.parametrize("page", [*PAGES, SESSION])
def test_every_command_that_a_page_shows_exists_with_its_options(page: str) -> None:
    typed = [line for line in (ROOT / SESSION).read_text("utf-8").splitlines() if line.startswith("$ eventsync ")]
    assert len(typed) > 8
    known = _commands()
    for shown in typed if page == SESSION else _shown(page):
        for words in (found.split() for found in _COMMAND.findall(shown)):
            if not words or words[0].startswith("-"):
                assert set(words) <= {"--help", "--install-completion", "--show-completion"}, shown
                continue
            verb = " ".join(words[:2]) if any(name.startswith(f"{words[0]} ") for name in known) else words[0]
            assert verb in known, f"{page} shows `{shown}`: there is no such verb"
            options = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
            assert options <= known[verb], f"{page} shows `{shown}`"


def test_the_readme_shows_the_way_of_a_feed_and_a_first_run_brings_its_own_service() -> None:
    shown = " ".join(_shown("README.md"))
    assert [verb for verb in ("check", "preview", "run", "rows") if f"eventsync {verb}" not in shown] == []
    assert re.findall(r"^\t\$\(BIN\)/eventsync ((?:demo|ui).*)$", MAKEFILE, re.MULTILINE) == ["demo", "ui --demo"]


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_that_a_page_names_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert {found for shown in _shown(page) for found in re.findall(r"^\s*make ([a-z-]+)", shown)} <= targets
    assert set(MAKEFILE.partition("\n.PHONY:")[2].partition("\n")[0].split()) == targets


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_leads_to_exists(page: str) -> None:
    links = _LINK.findall((ROOT / page).read_text("utf-8"))
    assert [link for link in links if "://" not in link and not ((ROOT / page).parent / link).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_folder_and_module_that_a_page_names_exists(page: str) -> None:
    spans = [
        span for span in _SPAN.findall((ROOT / page).read_text("utf-8")) if re.fullmatch(r"[\w./-]+(/|\.py|\.lock|\.toml)", span)
    ]
    places = [ROOT, *(ROOT / room for room in ("mappings", "connectors/event_api", "pipelines", "state"))]
    assert [span for span in spans if not any((place / span).exists() for place in places)] == []


def test_the_readme_names_variables_that_are_read_and_lists_every_exit_code() -> None:
    rooms = ("pipelines", "connectors")
    read = {name for room in rooms for path in (ROOT / room).rglob("*.py") for name in _VARIABLE.findall(path.read_text("utf-8"))}
    named = set(_VARIABLE.findall(README))
    assert {"EVENT_API_BASE_URL", "EVENT_API_KEY"} <= named <= read
    assert set(map(int, re.findall(r"^\| (\d+) \|", README, re.MULTILINE))) == set(map(int, ExitCode))


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = {found.groups() for found in _TEST.finditer((ROOT / page).read_text("utf-8"))}
    assert len(named) > (3 if page in {"docs/connectors.md", "docs/guarantees.md"} else -1)
    assert sorted("::".join(one) for one in named if not _is_test(*one)) == []


def _is_test(path: str, name: str) -> bool:
    file = ROOT / "tests" / path
    return file.is_file() and re.search(rf"^(?:async )?def {name}\(", file.read_text("utf-8"), re.MULTILINE) is not None


def test_every_row_of_a_fault_names_the_test_that_shows_it() -> None:
    page = (DOCS / "connectors.md").read_text("utf-8").partition("## Faults of services")[2]
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    assert [row for row in rows if not _TEST.search(row)] == []


def test_pages_name_no_machine_and_no_registry() -> None:
    for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        assert not re.search(r"/home/|/Users/|/root/", path.read_text("utf-8")), path


@pytest.mark.parametrize(("path", "write"), [*generated_files()], ids=lambda one: getattr(one, "name", ""))
def test_what_is_generated_from_the_code_is_what_the_code_says(path: Path, write: Callable[[], str]) -> None:
    assert path.read_text("utf-8") == write(), "generate it again: make reference"


def test_a_schema_is_published_for_each_document_and_an_example_for_each_verb() -> None:
    assert {path.name for path in (DOCS / "json").iterdir()} == set(map(file_name, DOCUMENTS))
    sections = re.split(r"^## eventsync (.+)$", write_commands(), flags=re.MULTILINE)[1:]
    pairs = list(zip(sections[::2], sections[1::2], strict=True))
    assert len(pairs) > 25
    assert [verb for verb, section in pairs if "```sh\n" not in section or f"eventsync {verb}" not in section] == []


def test_the_page_about_the_environment_names_what_is_read_and_nothing_else() -> None:
    """What the settings ask the environment for, and what they read from files that it names."""
    text = (ROOT / "pipelines" / "settings.py").read_text("utf-8")
    read = set(re.findall(r'"((?:EVENT|SALESFORCE|GOOGLE|DAGSTER)_?[A-Z]*_[A-Z_]+)"', text))
    read |= {f"{name}_FILE" for name in re.findall(r'\.(?:secret|header)\("([A-Z_]+)"\)', text)}
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "environment.md").read_text("utf-8"), re.MULTILINE)) == read


@pytest.mark.slow
def test_the_site_is_whole_and_asks_no_other_machine_for_anything(tmp_path: Path) -> None:
    """MkDocs itself looks at every link and anchor, and for pages that have no place in one of the parts."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", DOCS / "site" / "mkdocs.yml", "--site-dir", tmp_path]
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1", **nowhere}
    built = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr + built.stdout
    site = {path.name: path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    assert len(site) > 30
    loaded = re.compile(r"""<(?!a\b)\w+[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*""")
    assert {name: found for name, page in site.items() if (found := loaded.findall(page))} == {}
