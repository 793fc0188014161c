"""Run a program of Python in this process, and stop it when its parent has died, however: its pipe to our stdin then closes.

`python -m pipelines.cli.with_parent -m MODULE` or `SCRIPT`, with the arguments of the program.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from threading import Thread


def _stop_with_parent() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    Thread(target=_stop_with_parent, name="parent", daemon=True).start()
    is_module = sys.argv[1] == "-m"
    del sys.argv[: 2 if is_module else 1]
    (runpy.run_module if is_module else runpy.run_path)(sys.argv[0], run_name="__main__")
