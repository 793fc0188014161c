"""`python -m sandbox`: run a sandbox as its own process; the first line of output is its address as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sandbox.server import Address, Announcement, serve
from sandbox.store import StateInUseError
from sandbox.switches import SwitchError, parse_switches


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal, then return 0; return 2 with a message on stderr if the sandbox cannot start."""
    parser = argparse.ArgumentParser(
        prog="python -m sandbox", description="Run a local Event Publishing service for tests and trials."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 chooses a free one (%(default)s)")
    parser.add_argument("--state", type=Path, metavar="DIR", help="folder that keeps the service's state (default: in memory)")
    parser.add_argument("--key", help="secret of the default API key (default: a new one)")
    parser.add_argument("--rate", metavar="N/s", help="short for --set rate_events=N/s")
    parser.add_argument(
        "--set", dest="switches", action="append", default=[], metavar="SWITCH=VALUE", help="set a switch; may be repeated"
    )
    options = parser.parse_args(arguments)
    rate = [f"rate_events={options.rate}"] if options.rate else []
    try:
        switches = parse_switches([*rate, *options.switches])
        serve(Address(options.host, options.port), options.state, switches, options.key, _announce)
    except (SwitchError, StateInUseError, OSError) as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 2
    return 0


def _announce(announcement: Announcement) -> None:
    sys.stdout.write(json.dumps(asdict(announcement)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
