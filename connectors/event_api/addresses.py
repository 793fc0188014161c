"""Which addresses a partner's link may lead us to: public ones, as they resolve at the very moment of connecting.

What is fetched from there is `media`'s. Without this, a cell of a spreadsheet could make the worker read from the
network that it runs in.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from aiohttp.abc import AbstractResolver, ResolveResult

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name; raises `OSError` where there are none."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 addresses behind a translator (RFC 6052)."""


def is_public(address: str) -> bool:
    """Tell whether `address` (an IP literal, no name) is one of the public internet, also where it wraps an IPv4 one."""
    try:
        outer = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _wrapped(outer)
    reached = outer if inner is None else inner
    return reached.is_global and not reached.is_multicast and not reached.is_reserved


def is_numeric(host: str) -> bool:
    """Tell whether `host` is written in numbers, and so would be connected to without asking a resolver.

    Odd spellings count as well (`127.1`, `2130706433`): the operating system understands them.
    """
    return ":" in host or host.replace(".", "").isdigit()


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


def _wrapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)


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
