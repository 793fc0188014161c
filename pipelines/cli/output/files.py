"""Replace a file atomically: readers see the older one until the new one is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mappings.errors import ConfigError


@contextmanager
def written_whole(file: Path, option: str) -> Iterator[Path]:
    """Yield a path beside `file` to write to: it takes the place of `file` at the end of the block, or is gone.

    Raises:
        ConfigError: it cannot be written there; `option` is what named the file.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}", hint=f"choose another file for {option}") from error
    finally:
        beside.unlink(missing_ok=True)
