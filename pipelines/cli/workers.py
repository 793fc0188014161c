"""A pool of worker processes that run feeds side by side: multiprocessing's fork server imports once and forks them.

Python's `ProcessPoolExecutor` fails all its work if one process is killed. Here a killed worker loses its own run only. Workers
hear of signals from the parent alone, so that each signal counts once; a worker whose parent has died stops its run in good
order.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, cast

from pipelines.cli.output.console import Output, Progress, counted
from pipelines.cli.run_report import RunReport
from pipelines.clock import monotonic_s
from pipelines.run.outcome import ExitCode
from pipelines.run.signals import STOPPING, ignore_all_but_sigint, leaving_on_second_signal, signals_raised

Run = Callable[[Output], RunReport]
WORKERS = get_context("forkserver")
_STOP = "stop"
_DRAWN_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """One run for a worker process. `name` is shown while it is at work; `run` is pickled."""

    name: str
    run: Run


@dataclass(slots=True)
class WorkerPool:
    """Runs tasks in at most `most` processes at a time."""

    most: int
    output: Output
    _at_work: dict[Connection, tuple[Task, Progress]] = field(default_factory=dict)
    _is_stopping: bool = False

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, RunReport | None]]:
        """Yield each task with its report when it has ended; None if its process died.

        After a signal, or a report of an interrupted run, no further task is begun, and those at work are stopped.
        """
        waiting = deque(tasks)
        with ExitStack() as workers, self.output.progress(counted(len(waiting), "feed"), len(waiting)) as bar:

            def begin_next(worker: Connection) -> None:
                task = waiting.popleft()
                self._at_work[worker] = task, bar.line(task.name)
                _send(worker, (task.run, bar.is_drawn))

            for _ in range(min(self.most, len(waiting))):
                begin_next(workers.enter_context(_start_worker()))
            while self._at_work:
                for worker in self._wait():
                    task, line = self._at_work[worker]
                    match message := _receive(worker):
                        case ("advance", count):
                            line.advance(count)
                        case ("expect", count):
                            line.expect(count)
                        case ("aside", sentence):
                            self.output.aside(sentence)
                        case _:
                            del self._at_work[worker]
                            line.remove()
                            bar.advance()
                            if message and message.exit_code == ExitCode.INTERRUPTED and not self._is_stopping:
                                self._stop()
                            if waiting and not self._is_stopping:
                                begin_next(worker if message else workers.enter_context(_start_worker()))
                            yield task, message

    def _wait(self) -> list[Connection]:
        """Return the workers that have sent something or died; none after a signal, which is passed on to all."""
        try:
            with signals_raised():
                return cast("list[Connection]", wait(self._at_work))
        except KeyboardInterrupt:
            self._stop()
            return []

    def _stop(self) -> None:
        self._is_stopping = True
        for worker in self._at_work:
            _send(worker, _STOP)


def _send(connection: Connection, message: object) -> None:
    """Send a message, unless the other process has ended."""
    with suppress(OSError):
        connection.send(message)


def _receive(connection: Connection) -> Any:
    """Return the next message, None if the other process has ended."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        return None


def fork_process(target: Callable[..., object], *args: object) -> BaseProcess:
    """Return a new process of the fork server, with signals blocked: they are the parent's to pass on.

    Raises:
        OSError, EOFError: the fork server was killed.
    """
    resource_tracker.ensure_running()  # first, because it unblocks signals
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    process = WORKERS.Process(target=target, args=args)
    process.start()
    return process


def _start_worker() -> Connection:
    """Return the connection to a new worker; it is at its end if there is none."""
    mine, theirs = WORKERS.Pipe()
    with theirs, suppress(OSError, EOFError):
        fork_process(_serve, theirs)
    return mine


class _RelayedProgress(Progress):
    """The progress of a run, which the parent draws."""

    def __init__(self, send: Callable[[tuple[str, int]], None]) -> None:
        super().__init__()
        self._send = send
        self._count, self._sent_at = 0, 0.0

    def advance(self, count: int = 1) -> None:
        self._count += count
        if monotonic_s() - self._sent_at >= _DRAWN_EVERY_S:
            self.flush()

    def expect(self, count: int) -> None:
        self.flush()
        self._send(("expect", count))

    def flush(self) -> None:
        self._send(("advance", self._count))
        self._count, self._sent_at = 0, monotonic_s()


class _RelayedOutput(Output):
    """The output of a run in a worker, which the parent prints."""

    def __init__(self, parent: Connection, *, is_drawn: bool) -> None:
        super().__init__(json=True)
        self._parent, self._is_drawn = parent, is_drawn

    def aside(self, text: str) -> None:
        _send(self._parent, ("aside", text))

    @contextmanager
    def progress(self, description: str, total: int | None = None, *, is_counted: bool = True) -> Iterator[Progress]:
        del description, total, is_counted
        if not self._is_drawn:
            yield Progress()
            return
        relayed = _RelayedProgress(lambda message: _send(self._parent, message))
        yield relayed
        relayed.flush()


def _serve(parent: Connection) -> None:
    """Run one task after another until the connection is closed; only the parent's signals stop one."""
    os.setsid()  # out of reach of the terminal's signals
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that came before
    ignore_all_but_sigint()
    os.dup2(sys.stderr.fileno(), 1)  # stdout is the parent's
    sys.stdout = sys.stderr  # a stream that began on a file fails on what stderr may be, a pipe
    gc.freeze()  # so that collections copy no shared memory
    tasks: SimpleQueue[tuple[Run, bool] | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(parent, tasks.put), name="eventsync-listening", daemon=True).start()
    with leaving_on_second_signal(lambda: None):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        while task := tasks.get():
            run, is_drawn = task
            _send(parent, run(_RelayedOutput(parent, is_drawn=is_drawn)))
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def _listen(parent: Connection, put: Callable[[Any], None]) -> None:
    """Pass on the parent's tasks, and its signals as SIGINT. A closed connection stops the run that is at work."""
    is_stopping = False
    while message := _receive(parent) or (not is_stopping and _STOP):
        if message == _STOP:
            is_stopping = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            put(message)
    put(None)
