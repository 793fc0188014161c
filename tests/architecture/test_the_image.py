"""What the container file copies is there, and what it compiles is found by whoever may write none."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from architecture.places import ROOT

FILE = ROOT / "deploy" / "Containerfile"


def _instructions(word: str) -> list[str]:
    text = FILE.read_text("utf-8").replace("\\\n", " ")
    return [line.removeprefix(word).strip() for line in text.splitlines() if line.startswith(f"{word} ")]


def test_what_the_image_is_built_from_is_there_and_let_in() -> None:
    copied = [
        [word for word in copy.split()[:-1] if not word.startswith("--")]
        for copy in _instructions("COPY")
        if "--from" not in copy
    ]
    sources = {source for some in copied for source in some}
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert lines.index("!deploy") < lines.index("deploy/*"), "of that folder only what is named after is let in"
    assert sources | {"deploy"} == {line[1:] for line in lines if line.startswith("!")}
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_image_begins_with_scripts_that_may_be_run() -> None:
    (entry,) = _instructions("ENTRYPOINT")
    (health,) = (check.partition("CMD ")[2] for check in _instructions("HEALTHCHECK"))
    for words in (entry, health):
        (script,) = json.loads(words)
        assert os.access(ROOT / "deploy" / script, os.X_OK)
        subprocess.run(["sh", "-n", str(ROOT / "deploy" / script)], check=True)


def test_the_image_holds_bytecode_that_is_used_without_a_look_at_its_source(tmp_path: Path) -> None:
    (compiling,) = (run for run in _instructions("RUN") if "compileall" in run)
    words = compiling.split()
    assert words[0] == "python"
    shutil.copytree(ROOT / "mappings", tmp_path / "mappings", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, *words[1:-1], str(tmp_path)], check=True)
    (tmp_path / "mappings" / "identity.py").write_text("raise RuntimeError('compiled again')\n", encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    told = "import mappings.identity; print(mappings.identity.__file__)"
    run = subprocess.run([sys.executable, "-c", told], env=environ, capture_output=True, text=True, check=True)
    assert Path(run.stdout.strip()).is_relative_to(tmp_path)


def test_the_image_runs_as_nobody_in_particular_and_keeps_its_books_in_a_volume() -> None:
    assert _instructions("USER") == ["eventsync"]
    assert _instructions("VOLUME") == ["/srv/eventsync/.eventsync"]
    assert not [run for run in _instructions("ENV") if re.search("KEY|TOKEN|PASSWORD", run)]
