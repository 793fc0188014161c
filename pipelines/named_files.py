"""Text files that environment variables name: a key, addresses, a secret.

What such a file holds is for those who ask; that the environment is read once, and all problems told at once, `settings`'.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from pathlib import Path


def read_named_file(name: str, file: Path, problems: MutableSequence[str]) -> str:
    """Return the text of the `file` that the variable `name` names; "" and a line in `problems` where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        problems.append(f"{name}: {file} is not text in UTF-8")
    except OSError as error:
        problems.append(f"{name}: cannot read {file}: {error.strerror or error}")
    return ""
