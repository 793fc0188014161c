"""A reader who follows a page to the letter in an empty folder: its files, edits and commands, each held to what it shows."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from integration.desk import Command, Desk
from integration.waiting import pause, until
from terminal import at_a_terminal

_BLOCK = re.compile(
    r"^(?:In `(?P<file>[^`\n]+)`[^\n]*:\n\n)?```(?P<language>sh|diff|console)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
_MOVING = {
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|\d{8}T\d{6}-[0-9a-f]{8}": "RUN",
    r"(?!2031)\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\+00:00)?": "NOW",
    r"127\.0\.0\.1:\d+": "127.0.0.1:PORT",
    r"pace: .*": "pace",
    r"[\d.,]+ rows/s|, about [\w: ]+ left": "",
    r"^ ─+ *$": " ───",
    r" +$": "",
}
"""What differs each time."""
_QUESTION = re.compile(r"^(.*\]:) ?(.*)$", re.MULTILINE)
_LEFT_RUNNING = {"sandbox": "export EVENT_API_BASE_URL", "ui": "Stop with Ctrl-C."}
"""What stays in a terminal of its own, and the words by which it is ready."""
_PATIENCE_S = 180.0
"""Dagster takes its time where every processor is busy."""


class Block(NamedTuple):
    """A block of a page; `file` is the one that a `diff` is about."""

    language: str
    text: str
    file: str


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks that a reader acts upon: `sh` is typed, `diff` edited, `console` typed and compared."""
    for found in _BLOCK.finditer(page):
        yield Block(found["language"], found["text"], found["file"] or "")


@dataclass
class Reader:
    """A reader at a desk. `port` is the service's on the page; here it takes a free one, and the page is read with that."""

    desk: Desk
    port: str
    _free_port: str = "0"
    _code: int = 0
    _left: dict[str, Command] = field(default_factory=dict)

    def follow(self, block: Block) -> None:
        """Do what a block shows. A command that fails must be followed by `echo $?`."""
        match block.language:
            case "diff":
                _edit(self.desk.folder / block.file, block.text)
            case "sh":
                self.compare(block.text, "", self._in_a_shell(self._here(block.text)))
            case _:
                for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                    command, _, words = shown.partition("\n")
                    assert not self._code or command == "echo $?", f"exit code {self._code}, and then: {command}"
                    self.compare(command, words, self._said(self._here(command), words))

    def compare(self, command: str, shown: str, said: str) -> None:
        """Hold what a command has said against what the page shows; a line `...` there stands for any others."""
        told = self.still(said)
        assert self._is_as_shown(shown, said), f"$ {command}\n{told}\n\nand the page shows\n\n{self.still(shown)}"

    def still(self, text: str) -> str:
        text = text.replace(str(self.desk.folder), "~/riverside")
        for pattern, word in _MOVING.items():
            text = re.sub(pattern, word, text, flags=re.MULTILINE)
        return "\n".join(line for line in text.splitlines() if line)

    def leave(self) -> None:
        """Ctrl-C in the terminals where something is left running, the last one first."""
        for command in reversed(self._left.values()):
            command.signal(signal.SIGINT)
            assert command.ended().code == 0

    def _said(self, command: str, shown: str) -> str:
        program, *words = command.split()
        if command == "echo $?":
            code, self._code = self._code, 0
            return str(code)
        if program != "eventsync":
            return self._in_a_shell(command)
        if words[0] in _LEFT_RUNNING:
            return self._said_first(words)
        if typed := [(f"{question} ", f"{answer}\n") for question, answer in _QUESTION.findall(shown)]:
            self._code, said_there = at_a_terminal(words, self.desk.folder, self.desk.env, typed)
            return said_there
        if "ui" in self._left:  # what it starts by itself takes its time
            says = lambda: self._is_as_shown(shown, self.desk.command(*words).out) or pause(0.5)  # noqa: E731  # asked again and again
            until(says, within_s=_PATIENCE_S, what=f"what `{command}` is to say")
        said = self.desk.command(*words)
        self._code = said.code
        return said.out + said.err

    def _said_first(self, words: list[str]) -> str:
        """Leave a command running once it is ready, and return what it has said until then."""
        command = self._left[words[0]] = self.desk.start(*words)
        ready = _LEFT_RUNNING[words[0]]
        until(lambda: ready in command.text(".out"), within_s=_PATIENCE_S, what=f"`{words[0]}` to be ready")
        until(lambda: command.text(".out").endswith("\n"), what="the end of its line")
        said = command.text(".out")
        if words[0] == "sandbox":
            self._free_port = re.findall(r"127\.0\.0\.1:(\d+)", said)[0]
        return said

    def _here(self, text: str) -> str:
        return text.replace(self.port, self._free_port)

    def _is_as_shown(self, shown: str, said: str) -> bool:
        pattern = "\n".join(".*" if line == "..." else re.escape(line) for line in self.still(shown).splitlines())
        return re.fullmatch(pattern, self.still(said), re.DOTALL) is not None

    def _in_a_shell(self, text: str) -> str:
        environ = {**self.desk.env, "PATH": f"{Path(sys.executable).parent}:{self.desk.env['PATH']}"}
        done = subprocess.run(["sh", "-ec", text], cwd=self.desk.folder, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _edit(path: Path, shown: str) -> None:
    """Change a file as shown: the lines of each part of it must be there, and once; a line `...` parts them."""
    text = path.read_text("utf-8")
    for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in part.splitlines(keepends=True)]
        before = "".join(rest for mark, rest in lines if mark != "+")
        after = "".join(rest for mark, rest in lines if mark != "-")
        assert text.count(before) == 1, f"{path.name} holds these lines {text.count(before)} times:\n{before}\n\n{text}"
        text = text.replace(before, after)
    path.write_text(text, "utf-8")
