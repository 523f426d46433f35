"""Which IP addresses are public: a table of our own.

The flags of the `ipaddress` module change between Python patch releases and call several internal ranges global, so it
only parses here. Sources: the IANA special-purpose registries, and cloud platforms' addresses of their own.
"""

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

type Address = IPv4Address | IPv6Address
type Network = IPv4Network | IPv6Network

NOT_PUBLIC_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's platform address
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
PUBLIC_V6 = IPv6Network("2000::/3")
NOT_PUBLIC_V6 = tuple(
    IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48")
)
NAT64 = IPv6Network("64:ff9b::/96")

_DOTTED_QUAD = re.compile(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}")


def parse_address(text: str) -> Address | None:
    """The address that `text` spells in its canonical form, or None. Zones (`fe80::1%eth0`) are no addresses."""
    try:
        if ":" in text:
            return None if "%" in text else IPv6Address(text)
        return IPv4Address(text) if _DOTTED_QUAD.fullmatch(text) else None
    except AddressValueError:
        return None


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """CIDR ranges as an operator writes them. Raises ValueError naming the one that is none."""
    return tuple(ip_network(text.strip()) for text in texts)


def is_public(address: Address, *, nat64: bool = False) -> bool:
    """Whether an address belongs to the open internet; with `nat64` also the translation of one that does."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_V4)
    if nat64 and address in NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in PUBLIC_V6 and not any(address in network for network in NOT_PUBLIC_V6)


def is_within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
