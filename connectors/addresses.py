"""Protection against SSRF (server-side request forgery): which addresses a partner's link or a server's redirect may use.

Public addresses are determined by IANA's registries, including IPv4 addresses embedded in IPv6. The metadata services of
clouds, which give out the machine's credentials, are always refused.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The public range of IPv6 (RFC 4291); other ranges that embed IPv4 addresses are checked separately."""
_SPECIAL = [
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
]
"""Non-public ranges in IANA's registries of special-purpose addresses.

They are listed here because `ipaddress` knows fewer of them in earlier versions of Python.
"""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""The prefix of IPv4 addresses behind a NAT64 translator (RFC 6052)."""
_WRAPPING = (ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
"""Other ranges with an IPv4 address in their lowest bits, none of them public (RFC 4291, RFC 8215)."""
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
"""Addresses of the metadata services of clouds; of IPv4, the whole link-local range."""
_FIRST_FREE_PORT = 1024
_ISATAP = frozenset({0x5EFE, 0x0200_5EFE})
"""The middle part of an ISATAP interface id, which is followed by an IPv4 address (RFC 5214)."""


def _parse(address: str) -> Address | None:
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Return whether `address` (an IP literal) is public; an embedded IPv4 address must be public too."""
    outer = _parse(address)
    return outer is not None and all(map(_is_public, _reached(outer)))


def is_metadata(address: str) -> bool:
    """Return whether `address` (an IP literal) is or embeds one of a cloud's metadata service."""
    outer = _parse(address)
    if outer is None:
        return False
    reached = [outer, *_reached(outer)]
    if any(outer in network for network in _WRAPPING):
        reached.append(ipaddress.IPv4Address(int(outer) & 0xFFFFFFFF))
    return any(one in network for one in reached for network in _METADATA)


def numeric_address(host: str) -> str:
    """Return the IP address that `host` is a numeric form of, "" if it is a name.

    Unusual forms (`127.1`, `2130706433`, `0x7f000001`) count too, since the operating system accepts them.
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
    """Return why a host with these IP addresses must not be connected to, "" if it may be. One bad address refuses the host."""
    found = list(addresses)
    if any(map(is_metadata, found)):
        return "leads to the metadata service of a cloud"
    if not allows_private and not all(map(is_public, found)):
        return "leads into a private network"
    return ""


def refusal_of_host(host: str, *, allows_private: bool = True) -> str:
    """Return why a host in an address must not be connected to, "" if it may be or is a name, which is checked once resolved."""
    literal = numeric_address(host)
    return refusal_of([literal], allows_private=allows_private) if literal else ""


def is_usual_port(port: int | None) -> bool:
    """Return whether a partner's link may use this port: 80, 443 or an unreserved one, but not that of a mail server."""
    return port is None or port in {80, 443} or _FIRST_FREE_PORT <= port < 1 << 16


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _SPECIAL)


def _reached(address: Address) -> list[Address]:
    """Return the addresses that `address` reaches: itself, or the IPv4 addresses embedded in it."""
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
    """Return whether `host` is this machine: `localhost`, a name under it, or a loopback address."""
    address = _parse(host)
    return host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)
