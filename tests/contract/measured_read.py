"""Reading files in processes of their own, with the memory that each reading took.

Run as a program it reads jobs from its input, a line of JSON each, and forks for each of them, so that the modules are imported
once and no reading finds memory that an earlier one left.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.program import Program

_LONGEST_S = 60
_MOST_ADDRESS_SPACE = 3 * 2**30
"""Bytes: a bound that fails must not take the machine's memory."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How a reading ended: the error with its hint, and its type, "" for none; the rows, those with a problem, and the megabytes
    that it took beyond a small read.
    """

    error: str
    kind: str
    rows: int
    rejected: int
    megabytes: float


@dataclass(frozen=True, slots=True)
class Reader:
    """The process that forks."""

    program: Program

    def read(self, folder: Path, small: str, hostile: str, spec: dict[str, Any]) -> Measured:
        """Read a small file and then a hostile one of the same kind."""
        answer = self.program.ask(folder=str(folder), small=small, hostile=hostile, spec=spec)
        assert "status" not in answer, f"the reading did not end within {_LONGEST_S} s, or crashed: {answer}"
        return Measured(**answer)


def _serve() -> None:
    # The process that tests run in imports none of this here, and needs none of it.
    from connectors.sources.catalogue import open_source  # noqa: PLC0415, F401

    for line in sys.stdin:
        child = os.fork()
        if not child:
            signal.alarm(_LONGEST_S)
            resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESS_SPACE, _MOST_ADDRESS_SPACE))
            print(json.dumps(_measured(**json.loads(line))), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"status": status}), flush=True)


def _measured(folder: str, small: str, hostile: str, spec: dict[str, Any]) -> dict[str, Any]:
    _read(Path(folder), small, spec)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = _read(Path(folder), hostile, spec)
    return {**found, "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def _read(folder: Path, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415

    from connectors.sources.catalogue import open_source  # noqa: PLC0415
    from mappings.spec.source import SourceSpec  # noqa: PLC0415

    rows = rejected = 0
    error: Exception | None = None
    try:
        described = TypeAdapter[SourceSpec](SourceSpec).validate_python({**spec, "path": name})
        with open_source(described, folder, frozenset()).read() as reading:
            for row in reading.rows:
                rows += 1
                rejected += bool(row.problems)
    except Exception as caught:  # noqa: BLE001  # the test says which one it has to be
        error = caught
    said = f"{error} ({getattr(error, 'hint', '')})" if error else ""
    return {"error": said, "kind": type(error).__name__ if error else "", "rows": rows, "rejected": rejected}


if __name__ == "__main__":
    _serve()
