"""The command `eventsync`, also as `python -m eventsync`."""

from __future__ import annotations

import signal
import sys

from eventsync.own_packages import ForeignPackageError, check_packages


def main() -> None:
    """Run the command line and exit with the command's exit code; 2 if packages of another project are in its way."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback before the command line listens
    try:
        check_packages()
    except ForeignPackageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    from pipelines.cli.entry import main as run  # noqa: PLC0415  # it may be another project's

    run()


if __name__ == "__main__":
    main()
