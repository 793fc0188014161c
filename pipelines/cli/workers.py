"""Run feeds side by side, each in a process of its own, which multiprocessing's fork server forks after importing once.

Python's `ProcessPoolExecutor` fails all its work if one process is killed. Here a killed process loses its own run only. Signals
reach the processes through the parent alone, so that each signal counts once; a process whose parent has died stops its run in
good order.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

from pipelines.cli.output.console import Output, counted
from pipelines.cli.run_report import RunReport
from pipelines.run.outcome import ExitCode
from pipelines.run.signals import STOPPING, ignore_all_but_sigint, leaving_on_second_signal, signals_raised

Run = Callable[[Output], RunReport]
"""A run of a feed; it is pickled."""
WORKERS = get_context("forkserver")
_STOP = "stop"


def run_side_by_side(runs: Mapping[str, Run], most: int, output: Output) -> Iterator[tuple[str, RunReport | None]]:
    """Run at most `most` feeds at a time; yield the name of each with its report when it has ended, None if its process died.

    After a signal, or a report of an interrupted run, no further run is begun, and those at work are stopped.
    """
    waiting, at_work = deque(runs), dict[Connection, str]()
    with ExitStack() as connections, output.progress(counted(len(waiting), "feed"), len(waiting)) as bar:
        is_stopping = False
        while at_work or (waiting and not is_stopping):
            while waiting and len(at_work) < most and not is_stopping:
                name = waiting.popleft()
                at_work[connections.enter_context(_start_worker(runs[name]))] = name
            try:
                with signals_raised():
                    heard = cast("list[Connection]", wait(at_work))
            except KeyboardInterrupt:
                heard, is_stopping = [], True
                _stop(at_work)
            for worker in heard:
                message = _receive(worker)
                if isinstance(message, str):
                    output.aside(message)
                    continue
                name = at_work.pop(worker)
                bar.advance()
                if message and message.exit_code == ExitCode.INTERRUPTED and not is_stopping:
                    is_stopping = True
                    _stop(at_work)
                yield name, message


def _stop(workers: Iterable[Connection]) -> None:
    for worker in workers:
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


def _start_worker(run: Run) -> Connection:
    """Return the connection to a new process at work on `run`; it is at its end if there is none."""
    mine, theirs = WORKERS.Pipe()
    with theirs, suppress(OSError, EOFError):
        fork_process(_work, theirs, run)
    return mine


class _RelayedOutput(Output):
    """The output of a run in a worker: the parent prints its sentences, between its own."""

    def __init__(self, parent: Connection) -> None:
        super().__init__(is_json=True)
        self._parent = parent

    def aside(self, text: str) -> None:
        _send(self._parent, text)


def _work(parent: Connection, run: Run) -> None:
    """Run one feed and send its report; only the parent's signals stop it."""
    os.setsid()  # out of reach of the terminal's signals
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that came before
    ignore_all_but_sigint()
    os.dup2(sys.stderr.fileno(), 1)  # stdout is the parent's
    sys.stdout = sys.stderr  # a stream that began on a file fails on what stderr may be, a pipe
    gc.freeze()  # so that collections copy no shared memory
    with leaving_on_second_signal(lambda: None):
        threading.Thread(target=_listen, args=(parent,), name="eventsync-listening", daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        _send(parent, run(_RelayedOutput(parent)))
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def _listen(parent: Connection) -> None:
    """Pass on the parent's signals as SIGINT; its death is one, if none came before."""
    is_stopping = False
    while _receive(parent) or not is_stopping:
        is_stopping = True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
