"""The pages as a site: what is written from the code says what the code does, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from architecture.places import ROOT
from reference_pages.__main__ import generated_files, write_commands

from pipelines.cli.schema import DOCUMENTS, file_name

DOCS = ROOT / "docs"
SITE = DOCS / "site" / "mkdocs.yml"
NOWHERE = "http://127.0.0.1:9"


class Html(HTMLParser):
    """What a page of the site loads, where it leads, and what can be led to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.anchors |= {said[name] for name in ("id", "name") if name in said}
        if tag in {"a", "area"} and "href" in said:
            self.links.add(said["href"])
        elif tag == "link" and said.get("rel") not in {"canonical", "next", "prev"}:
            self.loaded.add(said.get("href", ""))
        elif "src" in said:
            self.loaded.add(said["src"])


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
    """What modules ask the environment for, and what they read from files that it names."""
    modules = [(ROOT / "pipelines" / name).read_text("utf-8") for name in ("settings.py", "telemetry/tracing.py")]
    read = {name for text in modules for name in re.findall(r'"((?:EVENT|SALESFORCE|GOOGLE|DAGSTER)_?[A-Z]*_[A-Z_]+)"', text)}
    read |= {f"{name}_FILE" for text in modules for name in re.findall(r'\.(?:secret|header)\("([A-Z_]+)"\)', text)}
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "environment.md").read_text("utf-8"), re.MULTILINE)) == read


def test_every_page_has_its_place_in_one_of_the_parts() -> None:
    named = re.findall(r"[\w/-]+\.md", str(yaml.safe_load(SITE.read_text("utf-8"))["nav"]))
    assert len(named) == len(set(named))
    assert {name for name in named if "/" not in name} == {path.name for path in DOCS.glob("*.md")}


@pytest.mark.slow
def test_the_site_is_whole_and_asks_no_other_machine_for_anything(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", SITE, "--site-dir", folder]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1", **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOWHERE)}
    built = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr + built.stdout
    site = {path: Html(path) for path in folder.rglob("*.html")}
    assert len(site) > 30
    assert {(path.name, one) for path, page in site.items() for one in page.loaded if urlsplit(one).netloc} == set()
    assert {(path.name, link) for path, page in site.items() for link in page.links if not _leads(link, path, site)} == set()


def _leads(link: str, path: Path, site: dict[Path, Html]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or path.name == "404.html":
        return True
    there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    there = there / "index.html" if there.is_dir() else there
    return there.exists() and (there not in site or unquote(parts.fragment) in site[there].anchors)
