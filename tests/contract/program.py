"""A program of the tests, beside them: it reads jobs from its input, a line of JSON each, and answers each with a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Program:
    """A program that has started."""

    jobs: IO[str]
    answers: IO[str]

    def ask(self, **job: object) -> Any:
        """Give a job, and wait for its answer."""
        self.jobs.write(json.dumps(job) + "\n")
        self.jobs.flush()
        return json.loads(self.answers.readline())


@contextmanager
def program(module: str) -> Iterator[Program]:
    """Start the program in a module's file, and stop it at the end."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, _ROOT / "tests")))}
    command = [sys.executable, module]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Program(process.stdin, process.stdout)
        process.stdin.close()
