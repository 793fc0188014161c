"""Kinds of source from installed packages: a package that keeps the contract, and packages that are broken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from contract.source_kinds import Folder
from pydantic import TypeAdapter
from wheels import unpacked_wheel

from connectors.sources.catalogue import open_source
from eventsync.testing import Grid, GridContract, Kind, SourceContract, Stand
from mappings.errors import MappingFileError
from mappings.spec.source import SourceSpec
from mappings.yaml.loader import parse_feed

PLUGIN = Path(__file__).parents[1] / "lookalikes" / "plugin"
SPEC: TypeAdapter[SourceSpec] = TypeAdapter(SourceSpec)


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package as it is installed, found by this process."""
    installed = unpacked_wheel(tmp_path_factory.mktemp("plugin"), PLUGIN)
    sys.path.append(str(installed))
    yield installed
    sys.path.remove(str(installed))


def netstrings(grid: Grid) -> bytes:
    texts = [str(len(grid[0])), *(cell for cells in grid for cell in cells)] if grid else []
    return b"".join(b"%d:%s," % (len(text.encode()), text.encode()) for text in texts) + b"."


class NetstringsStand(Folder):
    def put(self, grid: Grid) -> SourceSpec:
        (self.base / "events.csv").write_bytes(netstrings(grid))
        self.place = "events.csv"
        return SPEC.validate_python({"kind": "netstrings", "file": str(self.base / "events.csv")})


@contextmanager
def stand(base: Path) -> Iterator[Stand]:
    yield NetstringsStand(base, write=lambda _base, _grid: pytest.fail("it has a `put` of its own"))


class TestNetstrings(SourceContract, GridContract):
    source_kind = Kind("netstrings", stand, first=1)


FEED = """\
feed: agenda
source:
  kind: {kind}
key: [ref]
event: {{}}
"""
TICKER = """\
from typing import Literal
from eventsync.sources import PluginSource

class Ticker(PluginSource):
    kind: Literal["ticker"]
    every: int
"""


def install(site: Path, code: str, value: str = "ticker:Ticker", package: str = "ticker", kind: str = "ticker") -> None:
    """Put a package where an installer would."""
    (site / f"{package}.py").write_text(code, "utf-8")
    facts = site / f"eventsync_{package}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: eventsync-{package}\nVersion: 1.0\n", "utf-8")
    (facts / "entry_points.txt").write_text(f"[eventsync.sources]\n{kind} = {value}\n", "utf-8")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("ticker", "other"):
        sys.modules.pop(name, None)


def problems(source: str) -> list[str]:
    with pytest.raises(MappingFileError) as caught:
        parse_feed(FEED.format(kind=source), Path("agenda.yaml"))
    return [str(one) for one in caught.value.problems if "event" not in one.message or "package" in one.message]


BY_1 = 'agenda.yaml:3:3: the package eventsync-ticker 1.0 gives the kind of source "ticker"'


@pytest.mark.parametrize(
    ("code", "value", "words"),
    [
        ("import no_such_module", "ticker:Ticker", "and cannot be loaded: ModuleNotFoundError("),
        (TICKER, "ticker:Tacker", "and cannot be loaded: AttributeError("),
        ("Ticker = dict", "ticker:Ticker", ", and ticker:Ticker is no subclass of PluginSource"),
    ],
)
def test_a_broken_package_is_one_problem_that_names_it(packages: Path, code: str, value: str, words: str) -> None:
    install(packages, code, value)
    (said,) = problems("ticker")
    assert said.startswith(f"{BY_1}{words}" if words.startswith(",") else f"{BY_1} {words}"), said


def test_the_settings_of_a_plug_in_are_checked_as_ours_are(packages: Path) -> None:
    install(packages, TICKER)
    assert problems("ticker") == ['agenda.yaml:3:3: the key "every" is missing']
    assert problems("ticker\n  every: soon\n  evry: 1") == [
        'agenda.yaml:4:10: a whole number is needed, not "soon"',
        'agenda.yaml:5:3: unknown key "evry", did you mean "every"?',
    ]
    assert problems("tiker") == ['agenda.yaml:3:3: unknown kind of source "tiker", did you mean "ticker"?']


def test_two_packages_of_one_kind_are_one_problem_that_names_both(packages: Path) -> None:
    install(packages, TICKER)
    install(packages, TICKER, "other:Ticker", "other")
    (said,) = problems("ticker")
    assert "the package eventsync-other 1.0 and the package eventsync-ticker 1.0 both give" in said


def test_a_kind_of_ours_cannot_be_taken(packages: Path) -> None:
    install(packages, "raise AssertionError('it was loaded')", kind="csv")
    assert SPEC.validate_python({"kind": "csv", "path": "events.csv"}).place == "events.csv"


def test_an_editor_knows_the_kinds_that_are_installed(packages: Path) -> None:
    install(packages, TICKER)
    assert {"enum": ["netstrings", "ticker"]} in [
        one.get("properties", {}).get("kind") for one in TypeAdapter(SourceSpec).json_schema()["oneOf"]
    ]


def test_the_package_that_the_page_shows_gives_rows(packages: Path) -> None:
    page = (PLUGIN.parents[2] / "docs" / "connectors.md").read_text("utf-8").partition("## Kinds from packages\n")[2]
    install(packages, page.partition("```python\n")[2].partition("```")[0], "ticker:Ticker")
    spec = SPEC.validate_python({"kind": "ticker", "rows": "2", "optional": "price"})
    with open_source(spec, packages, frozenset({"Title", "price"})).read() as reading:
        assert [dict(row.cells) for row in reading.rows] == [
            {"ref": str(number), "Title": f"Tick {number}", "price": ""} for number in (1, 2)
        ]
