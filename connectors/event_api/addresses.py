"""A resolver for aiohttp's connections that gives only checked addresses, as they resolve at the moment of connecting.

Without it, a cell of a spreadsheet could make the worker read from the network that it runs in.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

from aiohttp.abc import AbstractResolver, ResolveResult

from connectors.public_addresses import refusal_of

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name; raises `OSError` where there are none."""


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve as the operating system does."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class GuardedResolver(AbstractResolver):
    """Gives the connector only addresses that were checked: what it connects to is what was looked at.

    So a name that answers differently the second time (DNS rebinding) gains nothing. `refused` says of names why they were
    refused.
    """

    def __init__(self, resolve: Resolve, *, allows_private: bool) -> None:
        self._resolve = resolve
        self._allows_private = allows_private
        self.refused: dict[str, str] = {}

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """Return the checked addresses of `host`; a single forbidden one among them refuses it."""
        addresses = await self._resolve(host, port)
        if refusal := refusal_of(addresses, allows_private=self._allows_private):
            self.refused[host] = refusal
            raise OSError(0, f"it {refusal}")
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
