"""`make torture`: hundreds of kills at chosen places, on SQLite and on PostgreSQL side by side, and a table of what they met.

What is done and what must hold is `ordeal`'s; here are the command, the bar and the tables.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from integration.desk import WarmStart
from postgres import postgres_server
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torture.blows import BLOWS
from torture.ordeal import Ordeal, Toll
from torture.phases import Place

DATABASES = ("sqlite", "postgresql")
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())


@dataclass(frozen=True, slots=True)
class Asked:
    """What to do: `kills` on each of `databases`."""

    kills: int
    seed: int
    databases: tuple[str, ...]
    is_json: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """How the ordeal of one database ended; `broken` says what did not hold, None if everything did."""

    database: str
    toll: Toll
    broken: BaseException | None


def main() -> int:
    """Return 0 if every promise held, 1 if one did not."""
    asked, told, began = _asked(), Console(stderr=True), monotonic()
    told.print(f"{asked.kills} kills on each of {', '.join(asked.databases)}, seed {asked.seed}")
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    ended = _side_by_side(asked, folder, told)
    _show(asked, ended, monotonic() - began)
    for each in ended:
        if each.broken is not None:
            told.print(f"{each.database}: {type(each.broken).__name__}: {each.broken}", markup=False, style="red")
            told.print(f"what is left of it: {folder / each.database}; to repeat: --seed {asked.seed} --kills {asked.kills}")
    if any(each.broken for each in ended):
        return 1
    shutil.rmtree(folder)
    return 0


def _asked() -> Asked:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="how often a run is struck, on each database (500)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="where the dice begin (drawn)")
    parser.add_argument("--databases", default=",".join(DATABASES), help="sqlite, postgresql, or both (both)")
    parser.add_argument("--json", action="store_true", help="print the tables as one JSON document")
    words = parser.parse_args()
    databases = tuple(words.databases.split(","))
    if not set(databases) <= set(DATABASES):
        parser.error(f"--databases: {words.databases} is not a choice of {', '.join(DATABASES)}")
    return Asked(words.kills, words.seed, databases, words.json)


def _side_by_side(asked: Asked, folder: Path, told: Console) -> list[Ended]:
    with ExitStack() as stack:
        url = _fresh_postgres(stack) if "postgresql" in asked.databases else None
        bar = stack.enter_context(Progress(*_COLUMNS, console=told))
        pool = stack.enter_context(ThreadPoolExecutor(len(asked.databases)))
        fresh: dict[str, Callable[[], str] | None] = {"sqlite": None, "postgresql": url}
        runs = [pool.submit(_one, asked, name, folder / name, fresh[name], bar) for name in asked.databases]
        return [run.result() for run in runs]


def _fresh_postgres(stack: ExitStack) -> Callable[[], str]:
    return stack.enter_context(postgres_server()).fresh_url


def _one(asked: Asked, name: str, folder: Path, fresh_url: Callable[[], str] | None, bar: Progress) -> Ended:
    task = bar.add_task(name, total=asked.kills)
    folder.mkdir()
    ordeal = Ordeal(asked.kills, f"{asked.seed} {name}", fresh_url, lambda toll: bar.update(task, completed=toll.blows))
    with closing(WarmStart()) as warm:
        try:
            ordeal.run(folder, warm)
        except Exception as broken:  # noqa: BLE001  # told at the end, when the other database has ended too
            return Ended(name, ordeal.toll, broken)
    return Ended(name, ordeal.toll, None)


def _show(asked: Asked, ended: list[Ended], took_s: float) -> None:
    if asked.is_json:
        document = {"seed": asked.seed, "took_s": round(took_s), "databases": {each.database: _counts(each) for each in ended}}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    console = Console(width=150)
    for each in ended:
        console.print(_table(each))
    console.print(f"{sum(each.toll.blows for each in ended)} blows in {took_s:.0f} s, seed {asked.seed}")


def _counts(ended: Ended) -> dict[str, object]:
    toll = ended.toll
    met = toll.by_signal_and_place()
    blows = {blow.name: {str(place): met[blow.name, str(place)] for place in Place} for blow in BLOWS}
    totals = {name: getattr(toll, name) for name in ("missed", "feeds", "rows", "events", "repeated", "edits")}
    return {"met": blows, "chunks": dict(sorted(toll.by_chunk().items())), **totals, "broken": str(ended.broken or "")}


def _table(ended: Ended) -> Table:
    toll, met = ended.toll, ended.toll.by_signal_and_place()
    table = Table(title=f"{ended.database}: blows that met a run, by signal and by where they met it", title_justify="left")
    table.add_column("signal")
    for place in (*Place, "all"):
        table.add_column(str(place), justify="right")
    for blow in BLOWS:
        counts = [met[blow.name, str(place)] for place in Place]
        table.add_row(blow.name, *map(str, counts), str(sum(counts)))
    sums = [sum(met[blow.name, str(place)] for blow in BLOWS) for place in Place]
    table.add_section()
    table.add_row("all", *map(str, sums), str(sum(sums)))
    chunks = ", ".join(f"{chunk}: {times}" for chunk, times in sorted(toll.by_chunk().items()))
    table.caption = (
        f"{toll.missed} more came when the run had ended. Staging by chunk: {chunks}. {toll.feeds} feeds of {toll.rows} rows in "
        f"the end became {toll.events} events; {toll.edits} edits between runs; {toll.repeated} rows were asked about again."
    )
    table.caption_justify = "left"
    return table


if __name__ == "__main__":
    raise SystemExit(main())
