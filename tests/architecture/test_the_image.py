"""What the container file copies is there, and what it compiles is found by whoever may write none."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
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


def _pins(lock: str) -> dict[str, str]:
    """Each pinned package of a lock file, by its name without extras."""
    lines = (ROOT / lock).read_text("utf-8").splitlines()
    pins = (re.match(r"([a-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", line) for line in lines)
    return {found[1].replace("_", "-"): found[2] for found in pins if found}


def test_the_image_holds_every_extra_in_the_versions_that_are_tried() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    wanted = [one for name, some in extras.items() if name not in {"test", "docs"} for one in some]
    held = _pins("deploy/requirements.lock")
    assert [one for one in wanted if re.split(r"[\[<>=; ]", one)[0] not in held] == []
    assert _pins("requirements.lock").items() <= held.items()


def test_the_lock_of_the_image_is_hashed_and_names_no_address() -> None:
    text = (ROOT / "deploy" / "requirements.lock").read_text("utf-8")
    assert len(_pins("deploy/requirements.lock")) == len(re.findall(r"==\S+.*\\\n\s+--hash=sha256:", text))
    assert not re.search(r"://|file:|\s@\s|--(index|extra-index|find-links|trusted)", text)


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
    told = "import mappings.row_key; print(mappings.row_key.__file__)"
    run = subprocess.run([sys.executable, "-c", told], env=environ, capture_output=True, text=True, check=True)
    assert Path(run.stdout.strip()).is_relative_to(tmp_path)


def test_the_image_runs_as_nobody_in_particular_and_keeps_its_books_in_a_volume() -> None:
    assert _instructions("USER") == ["eventsync"]
    assert _instructions("VOLUME") == ["/srv/eventsync/.eventsync"]
    assert not [run for run in _instructions("ENV") if re.search("KEY|TOKEN|PASSWORD", run)]
