"""Which addresses a partner's link or a server's redirect may lead to: the defence against SSRF (server-side request forgery).

Public addresses are known by IANA's registries, also where one address wraps another. The metadata services of clouds, which
hand out the machine's own credentials, are always refused.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All of IPv6 that is routed between networks (RFC 4291); what is wrapped in other ranges is looked at by itself."""
_SPECIAL = [
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
]
"""Ranges that are not of the public internet, by IANA's registries of special-purpose addresses.

They are written down rather than taken from `ipaddress`, which knows fewer of them in earlier versions of Python.
"""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv4 addresses behind a translator (RFC 6052)."""
_WRAPPING = (ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
"""Further ranges with an IPv4 address in their lowest bits: none of them is public (RFC 4291, RFC 8215)."""
_METADATA = [
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16",  # AWS, Azure, Google, Oracle, Tencent and others; credentials of containers
        "168.63.129.16/32",  # Azure
        "100.100.100.200/32",  # Alibaba
        "192.0.0.192/32",  # Oracle
        "fd00:ec2::/32",  # AWS
        "fd20:ce::254/128",  # Google
        "fe80::a9fe:a9fe/128",  # OpenStack
    )
]
"""Addresses by which machines in clouds learn their credentials; of IPv4, all that are of the link alone."""
_FIRST_FREE_PORT = 1024
_ISATAP = frozenset({0x5EFE, 0x0200_5EFE})
"""The middle of an interface's number whose rest is an IPv4 address (RFC 5214)."""


def _parse(address: str) -> Address | None:
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Return whether `address` (an IP literal, no name) is one of the public internet, also where it wraps an IPv4 one."""
    outer = _parse(address)
    return outer is not None and all(map(_is_public, _reached(outer)))


def is_metadata(address: str) -> bool:
    """Return whether `address` (an IP literal) is one of a cloud's metadata service, also where it wraps an IPv4 one."""
    outer = _parse(address)
    if outer is None:
        return False
    reached = [outer, *_reached(outer)]
    if any(outer in network for network in _WRAPPING):
        reached.append(ipaddress.IPv4Address(int(outer) & 0xFFFFFFFF))
    return any(one in network for one in reached for network in _METADATA)


def numeric_address(host: str) -> str:
    """Return the IP address that `host` spells in numbers, "" for a name.

    Odd spellings count as well (`127.1`, `2130706433`, `0x7f000001`): the operating system understands them.
    """
    bare = host.strip("[]").rstrip(".")
    address = _parse(bare)
    if address is not None:
        return str(address)
    try:
        return socket.inet_ntoa(socket.inet_aton(bare))
    except (OSError, UnicodeError):
        return ""


def refusal_of(addresses: Iterable[str], *, allows_private: bool) -> str:
    """Return why a host with these IP addresses is not connected to, "" if it may be: one bad address refuses all."""
    found = list(addresses)
    if any(map(is_metadata, found)):
        return "leads to the metadata service of a cloud"
    if not allows_private and not all(map(is_public, found)):
        return "leads into a private network"
    return ""


def refusal_of_host(host: str, *, allows_private: bool = True) -> str:
    """Return the same for a host as an address names it; a name that would have to be looked up passes."""
    literal = numeric_address(host)
    return refusal_of([literal], allows_private=allows_private) if literal else ""


def is_usual_port(port: int | None) -> bool:
    """Return whether a partner may lead us there: where the web is, or where nothing is reserved; not to a mail server."""
    return port is None or port in {80, 443} or port >= _FIRST_FREE_PORT


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _SPECIAL)


def _reached(address: Address) -> list[Address]:
    """Return all that an address may lead to: itself, or the IPv4 addresses that it wraps."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    lowest = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64:
        return [lowest]
    if address.teredo:
        return [*address.teredo]
    if address.ipv4_mapped or address.sixtofour:
        return [address.ipv4_mapped or address.sixtofour or lowest]
    return [address, lowest] if int(address) >> 32 & 0xFFFFFFFF in _ISATAP else [address]


def is_loopback(host: str) -> bool:
    """Return whether `host` is this very machine: `localhost`, a name under it, or a loopback address."""
    address = _parse(host)
    return host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)
