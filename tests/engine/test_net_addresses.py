"""Which addresses are public, table against table, and no help from the interpreter's flags."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.net.addresses import is_public, parse_address

# First and last address of each range that is not public, and neighbours that are.
CLOSED = [
    "0.0.0.0",
    "0.255.255.255",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "127.0.0.0",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.0",
    "169.254.255.255",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.255",
    "192.0.2.0",
    "192.0.2.255",
    "192.31.196.0",
    "192.52.193.255",
    "192.88.99.1",
    "192.168.0.0",
    "192.168.255.255",
    "192.175.48.1",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.7",
    "224.0.0.0",
    "239.255.255.255",
    "240.0.0.0",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:8.8.8.8",
    "::ffff:0:7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:1ff:ffff::",
    "2001:db8::1",
    "2002:808:808::",
    "3fff::1",
    "3fff:fff:ffff::",
    "2620:4f:8000::1",
    "4000::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]
OPEN = [
    "1.0.0.0",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "168.63.129.17",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.0.3.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "8.8.8.8",
    "2000::1",
    "2001:200::1",
    "2001:db7:ffff::1",
    "2003::1",
    "2606:4700:4700::1111",
    "3ffe::1",
    "3fff:1000::1",
]


@pytest.mark.parametrize("text", CLOSED)
def test_special_purpose_addresses_are_not_public(text: str) -> None:
    address = parse_address(text)

    assert address is not None
    assert not is_public(address)


@pytest.mark.parametrize("text", OPEN)
def test_addresses_of_the_open_internet_are_public(text: str) -> None:
    address = parse_address(text)

    assert address is not None
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_nothing_private_is_called_public(address: ipaddress.IPv4Address) -> None:
    # The flags miss ranges (that is why the table is ours), but what they call private is private.
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        assert not is_public(address)


def test_the_translation_of_a_public_address_is_public_only_where_the_operator_says_so() -> None:
    public, private = parse_address("64:ff9b::808:808"), parse_address("64:ff9b::a9fe:a9fe")
    assert public is not None
    assert private is not None

    assert not is_public(public)
    assert is_public(public, nat64=True)
    assert not is_public(private, nat64=True)


@pytest.mark.parametrize(
    "text",
    ["127.1", "0177.0.0.1", "0x7f.0.0.1", "2130706433", "1.2.3.4 ", "1.2.3.256", "fe80::1%eth0", "", "a.b", "１.1.1.1"],
)
def test_only_canonical_spellings_are_addresses(text: str) -> None:
    assert parse_address(text) is None
