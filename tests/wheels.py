"""Projects as they are installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def unpacked_wheel(folder: Path, project: Path = ROOT) -> Path:
    """Build a wheel of a project, ours by default; return the folder that it installs as."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheel"]
    subprocess.run(words, cwd=project, check=True, capture_output=True)
    (packed,) = (folder / "wheel").glob("*.whl")
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(folder / "site")
    return folder / "site"
