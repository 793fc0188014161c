"""Programs as kinds of source: one that prints lines of JSON, a Singer tap, an Airbyte connector."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.source_kinds import Grid, Kind, Stand
from lookalikes import tap
from pydantic import SecretStr

from connectors.masking import Mask
from connectors.sources.contract import Access
from mappings.spec.source import CommandSource, SourceSpec

TOKEN = "tok-5ecret-0f-0urs"
CONFIG = json.dumps({"token": TOKEN, "start_date": "2020-01-01"})
PROGRAMS = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def laid_tap(folder: Path) -> Path:
    """Put the tap into a folder, as a program."""
    path = folder / "tap.py"
    shutil.copyfile(tap.__file__, path)
    text = path.read_text("utf-8")
    path.write_text(f"#!{sys.executable} -S\n{text}", "utf-8")
    path.chmod(0o755)
    return path


def laid_rows(folder: Path, grid: Grid, before: Sequence[Any] = ()) -> list[Any]:
    """Put rows into a folder for the tap; those of an earlier grid keep the numbers of their edits, or are deleted."""
    edit = 1 + max((number for number, _, _ in before), default=0)
    records = [dict(zip(grid[0], cells, strict=True)) for cells in grid[1:]]
    known = {json.dumps(record): number for number, is_gone, record in before if not is_gone}
    rows: list[Any] = [[known.get(json.dumps(record), edit), False, record] for record in records]
    keys = {next(iter(record.values()), "") for record in records}
    rows += [[edit, True, record] for _, _, record in before if next(iter(record.values()), "") not in keys]
    (folder / "rows.json").write_text(json.dumps({"columns": grid[0] if grid else [], "rows": rows}), "utf-8")
    return rows


@dataclass
class ProgramStand:
    """A folder with a program and the rows that it prints."""

    base: Path
    words: Mapping[str, Any]
    place: str = "tap.py"
    access: Access = field(
        default_factory=lambda: Access(secrets={"TAP_OURS": SecretStr(CONFIG)}, programs=PROGRAMS, mask=Mask([CONFIG]))
    )
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = (TOKEN,)
    port: int = 0
    rows: list[Any] = field(default_factory=list)

    def put(self, grid: Grid) -> SourceSpec:
        self.rows = laid_rows(self.base, grid, self.rows)
        laid_tap(self.base)
        return CommandSource(kind="command", **self.words)

    def take_away(self) -> None:
        (self.base / "tap.py").unlink()

    def break_off(self) -> None:
        (self.base / "cut").touch()


def _stand(**words: Any) -> Callable[[Path], AbstractContextManager[Stand]]:
    @contextmanager
    def stand(base: Path) -> Iterator[Stand]:
        yield ProgramStand(base, words)

    return stand


def words_of(speaks: str, **more: Any) -> dict[str, Any]:
    stream = {} if speaks == "json" else {"stream": tap.STREAM}
    return {"run": ("./tap.py", speaks, "--config", "{config}"), "config": "OURS", "speaks": speaks, **stream, **more}


_RESUMED = {"resume": ("--state", "{state}"), "deleted": "_sdc_deleted_at"}


def _kind(name: str, *, first: int | None = 1, is_incremental: bool = False, **words: Any) -> Kind:
    return Kind(name, _stand(**words), first=first, is_grid=False, is_incremental=is_incremental, is_measured=False)


COMMAND_KINDS = [
    _kind("command", **words_of("json")),
    _kind("singer tap", **words_of("singer")),
    _kind("singer tap by its state", is_incremental=True, **words_of("singer", **_RESUMED)),
    _kind("airbyte connector by its state", is_incremental=True, **words_of("airbyte", **_RESUMED)),
]
