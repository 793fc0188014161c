"""The bench's own promises: what its page tells is made of what it measures, and everybody gets the same rows."""

from __future__ import annotations

import ast
import csv
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from architecture.places import ROOT

_BENCH = ROOT / "benchmarks"
_README = (_BENCH / "README.md").read_text("utf-8")


def _python(code: str, *words: str) -> str:
    """What a piece of code prints that imports the bench's modules, which are on no path of ours."""
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=_BENCH, check=True, capture_output=True, text=True).stdout


def test_the_readme_names_each_measurement_and_modules_that_exist() -> None:
    known = sorted(_python("import bench; print(*bench.MEASURES)").split())
    assert known == sorted(_python("import bench; print(*bench.READ)").split())
    assert known == sorted(path.stem for path in (_BENCH / "measures").glob("*.py") if path.stem != "memory")
    assert [name for name in known if f"`measures/{name}.py`" not in _README] == []
    listed = "\n".join(line for line in _README.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`((?:measures/|peers/)?\w+\.py)`", listed))
    assert len(named) > 15
    assert sorted(name for name in named if not any((_BENCH / folder / name).exists() for folder in ("", "peers"))) == []


def test_rows_are_written_as_their_cells_say(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    code = """
import json, sys
from pathlib import Path
import rows
rows.write_rows(Path(sys.argv[1]), 3000, edition=7, edited=20, is_shuffled=True)
print(json.dumps([rows.cells(number) for number in range(3000)]))
"""
    plain = {cells[0]: cells for cells in ast.literal_eval(_python(code, str(target)))}
    with target.open(newline="", encoding="utf-8") as source:
        _, *written = csv.reader(source)
    edited = [cells for cells in written if cells != plain[cells[0]]]
    assert sorted(cells[0] for cells in written) == sorted(plain)
    assert len(edited) == 20
    assert all(cells[1].endswith(", edition 7") for cells in edited)


def test_a_page_names_first_what_is_missed_and_draws_what_it_shows(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from xml.etree import ElementTree as ET
import page
from outcome import Bar, Line, Plot, Result, Standing, unjudged

lines = [Line(n, f"what {n}", "", "", "9 us", "", "8 us", "4 us", s) for n, s in (("10", Standing.MET), ("5", Standing.MISSED))]
result = Result(tuple(lines), (), (Plot("small", "A <title>", "us", (Bar("ours", 9, is_ours=True), Bar("theirs", 20)), 8),))
page.write(Path(sys.argv[1]) / "judged", [result], ["A machine."])
page.write(Path(sys.argv[1]) / "few", [unjudged(result)], ["A machine."])
"""
    _python(code, str(tmp_path))
    judged, few = ((tmp_path / name / "performance.md").read_text("utf-8") for name in ("judged", "few"))
    assert "**1 of 2 budgets are met**" in judged
    assert "* Missed: 5, what 5 (9 us; 8 us)." in judged
    assert judged.index("| 5 |") < judged.index("| 10 |")
    assert "Missed" not in few
    assert "budgets are met" not in few
    drawn = ET.parse(tmp_path / "judged" / "plots" / "small.svg").getroot()
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"A <title> (us)", "ours", "theirs", "budget 8 us", "eventsync"} <= set(texts)
    assert "![A <title>](plots/small.svg)" in judged


def test_each_part_of_the_bench_finds_what_it_imports_of_the_rooms() -> None:
    """Nothing else would notice before the next bench that a name has moved."""
    _python("import bench, client, floors, mapping, pace, publish, server, unchanged")
