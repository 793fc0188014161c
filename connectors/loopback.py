"""Which hosts are this very machine: the only ones that secrets may travel to without encryption.

What an address is good for otherwise is its user's matter.
"""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Tell whether `host` is this very machine: `localhost`, a name under it, or a loopback address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
