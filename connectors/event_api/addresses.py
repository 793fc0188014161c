"""Which addresses a partner's link may lead us to: public ones, as they resolve at the very moment of connecting.

What is fetched from there is `media`'s. Without this, a cell of a spreadsheet could make the worker read from the
network that it runs in.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

from aiohttp.abc import AbstractResolver, ResolveResult

from connectors.public_addresses import is_public

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name; raises `OSError` where there are none."""

_FIRST_FREE_PORT = 1024


def is_usual_port(port: int | None) -> bool:
    """Tell whether images may be served there: where the web is, or where nothing is reserved; not at a mail server's door."""
    return port is None or port in {80, 443} or port >= _FIRST_FREE_PORT


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve as the operating system does."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class GuardedResolver(AbstractResolver):
    """Gives the connector only addresses that were checked: what it connects to is what was looked at.

    So a name that answers differently the second time (DNS rebinding) gains nothing. `refused` holds the names that led
    to a private address.
    """

    def __init__(self, resolve: Resolve, *, allows_private: bool) -> None:
        self._resolve = resolve
        self._allows_private = allows_private
        self.refused: set[str] = set()

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """Return the checked addresses of `host`; a single private one among them refuses it."""
        addresses = await self._resolve(host, port)
        if not self._allows_private and not all(map(is_public, addresses)):
            self.refused.add(host)
            raise OSError(0, "it leads into a private network")
        return [_result(host, address, port) for address in addresses if family in {socket.AF_UNSPEC, _family(address)}]

    async def close(self) -> None:
        """Hold nothing that needs closing."""


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=_family(address),
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
