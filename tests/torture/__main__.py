"""`make torture`: hundreds of kills at chosen places, on SQLite and on PostgreSQL side by side, and a table of what they met."""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from time import monotonic

from integration.desk import WarmStart
from postgres import postgres_server
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torture.observer import Place
from torture.trial import Toll, Trial

DATABASES = ("sqlite", "postgresql")


def main() -> int:
    options, log, began = _options(), Console(stderr=True), monotonic()
    databases = options.databases
    log.print(f"{options.kills} kills on each of {', '.join(databases)}, seed {options.seed}")
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    with ExitStack() as stack:
        fresh: dict[str, Callable[[], str] | None] = dict.fromkeys(databases)
        if "postgresql" in fresh:
            fresh["postgresql"] = stack.enter_context(postgres_server()).fresh_url
        bar = stack.enter_context(Progress(console=log))
        pool = stack.enter_context(ThreadPoolExecutor(len(databases)))
        tolls = {name: Toll() for name in databases}
        runs = {name: pool.submit(_one, options, folder / name, fresh[name], bar, tolls[name]) for name in databases}
        broken = {name: f"{type(error).__name__}: {error}" for name, run in runs.items() if (error := run.exception())}
    console = Console(width=150)
    said = "{feeds} feeds of {rows} rows became {events} events; {edits} edits; {repeated} rows sent twice"
    table = Table("blows that met a run, by the place aimed at", *Place, "all")
    for name, toll in tolls.items():
        table.add_row(name, *(str(toll.met[place]) for place in Place), str(toll.met.total()))
    console.print(table)
    for name, toll in tolls.items():
        console.print(f"{name}: {toll.missed} more came when the run had ended; {said.format_map(toll.sums)}")
    console.print(f"{sum(toll.blows for toll in tolls.values())} blows in {monotonic() - began:.0f} s, seed {options.seed}")
    for name, what in broken.items():
        log.print(f"{name}: {what}", markup=False, style="red")
        log.print(f"what is left of it: {folder / name}; to repeat: --seed {options.seed} --kills {options.kills}")
    if not broken:
        shutil.rmtree(folder)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="how often a run is struck, on each database (500)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="where the dice begin (drawn)")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES, help="sqlite, postgresql, or both (both)")
    return parser.parse_args()


def _one(options: argparse.Namespace, folder: Path, fresh_url: Callable[[], str] | None, bar: Progress, toll: Toll) -> None:
    task = bar.add_task(folder.name, total=options.kills)
    folder.mkdir()
    seed = f"{options.seed} {folder.name}"
    trial = Trial(options.kills, seed, fresh_url, lambda so_far: bar.update(task, completed=so_far.met.total()), toll=toll)
    with closing(WarmStart()) as warm:
        trial.run(folder, warm)


if __name__ == "__main__":
    raise SystemExit(main())
