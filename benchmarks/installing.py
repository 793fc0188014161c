"""What is there before anything is measured: our bytecode, and the peers' environment beside `peers/requirements.txt`.

What of theirs cannot be installed is left out, and shown as such; nothing of it ever comes near the worker's own environment.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from running import HERE

PLACE = HERE / "peers" / ".venv"
PYTHON = PLACE / "bin" / "python"
WANTED = HERE / "peers" / "requirements.txt"
MARK = PLACE / ".installed"
ROOMS = ("eventsync", "pipelines", "connectors", "mappings", "state")
_VERSIONS = """
import importlib.metadata, json
print(json.dumps({one.name.lower().replace("_", "-"): one.version for one in importlib.metadata.distributions()}))
"""


def compile_rooms() -> None:
    """Compile our own code, as it is wherever it is installed: an edited checkout would else be compiled in every run."""
    command = [sys.executable, "-m", "compileall", "-q", *ROOMS]
    subprocess.run(command, check=True, cwd=HERE.parent)


def prepare() -> None:
    """Make the peers' environment, unless it holds what is asked for already."""
    wanted = WANTED.read_text("utf-8")
    if MARK.exists() and MARK.read_text("utf-8") == wanted:
        return
    if subprocess.run([sys.executable, "-m", "venv", str(PLACE)], check=False).returncode != 0:
        print("no environment could be made for the peers: they are left out", file=sys.stderr)
        return
    missing = [line for line in wanted.split() if not _is_installed(line)]
    for line in missing:
        print(f"not installed: {line}", file=sys.stderr)
    if not missing:
        MARK.write_text(wanted, "utf-8")


def _is_installed(requirement: str) -> bool:
    print(f"installing {requirement} for the peers", file=sys.stderr)
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def versions() -> Mapping[str, str]:
    """Return what the peers' environment holds, by name; nothing where there is none."""
    if not PYTHON.exists():
        return {}
    told = subprocess.run([str(PYTHON), "-c", _VERSIONS], check=True, capture_output=True, text=True).stdout
    return dict(json.loads(told))


def pinned() -> Mapping[str, str]:
    """Return the versions that are asked for, by name."""
    found = re.findall(r"^([a-z-]+)(?:\[.*\])?==(\S+)$", WANTED.read_text("utf-8"), re.MULTILINE)
    return dict(found)


def script(name: str) -> Path:
    return HERE / "peers" / name
