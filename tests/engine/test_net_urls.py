"""One reading of a URL: the same host that the HTTP library would call, or a refusal."""

from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import net
from engine.net.names import canonical_host, is_internal, is_listed, parse_host_list
from engine.net.urls import parse_url

AUTHORITY_PARTS = st.sampled_from(
    [
        *[
            "a.example",
            "A.EXAMPLE",
            "bücher.example",
            "127.0.0.1",
            "[::1]",
            ":80",
            ":443",
            ":",
            "@",
            "%2e",
            "\\",
            ".",
            "/",
            "?",
            "#",
            "user",
            "0x7f",
        ],
        *["xn--bcher-kva", "-", "_", "[", "]", "１", "。", "2130706433"],
        *(" ", "\t"),
    ]
)


@pytest.mark.parametrize(
    ("raw", "host"),
    [
        ("API.Example.COM", "api.example.com"),
        ("api.example.com.", "api.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("my_host.example", "my_host.example"),
        ("8.8.8.8", "8.8.8.8"),
        ("[2606:4700:4700:0:0:0:0:1111]", "2606:4700:4700::1111"),
    ],
)
def test_a_host_has_one_spelling(raw: str, host: str) -> None:
    assert canonical_host(raw) == host


@pytest.mark.parametrize(
    "raw",
    [
        *[".", "a..b", "-a.example", "a-.example", "exa%6dple.com", "[::1", "[1.2.3.4]", "[::1%25eth0]", "a。example"],
        *["2130706433", "0x7f000001", "1.2.3", "1.2.3.4.5", "01.2.3.4", "foo.0x", "１２７.０.０.１"],
        *("", "a b.example", "a\0.example", "☃\u200d.example", "a" * 64 + ".example", "a." * 130 + "example"),
    ],
)
def test_what_is_no_host_name_is_refused(raw: str) -> None:
    with pytest.raises(net.Refused):
        canonical_host(raw)


@given(st.lists(AUTHORITY_PARTS, min_size=1, max_size=5).map("".join))
def test_our_reading_of_the_host_is_the_http_librarys(authority: str) -> None:
    try:
        ours = parse_url(f"http://{authority}/path")
    except net.Refused:
        return
    theirs = httpx.URL(f"http://{authority}/path")

    assert theirs.raw_host.decode().removesuffix(".") == ours.host
    assert (theirs.port or 80) == ours.port
    assert unquote(theirs.raw_path.decode()) == unquote(ours.target)  # they leave brackets as they are
    assert httpx.URL(str(ours)).raw_host.decode() == ours.host


@given(st.text())
def test_any_text_is_a_url_or_refused(text: str) -> None:
    for candidate in (text, f"https://{text}", f"https://a.example/{text}"):
        try:
            url = parse_url(candidate)
        except net.Refused:
            continue
        assert url.target.isascii()
        assert parse_url(str(url)) == url


@pytest.mark.parametrize("port", ["0", "99999", "65536", "", "8o", "-1", "+80", "080000", "８０"])
def test_a_port_is_a_number_in_range(port: str) -> None:
    with pytest.raises(net.Refused) as refused:
        parse_url(f"http://a.example:{port}/")

    assert refused.value.code in (net.Code.PORT_NOT_ALLOWED, net.Code.INVALID_URL)


@pytest.mark.parametrize(
    "host",
    ["localhost", "redis", "db.internal", "printer.local", "a.lan", "x.home", "x.corp", "x.consul", "x.localdomain"],
)
def test_names_from_inside_a_network_are_known_as_such(host: str) -> None:
    assert is_internal(host)
    with pytest.raises(net.Refused) as refused:
        net.Policy.tenant().check_url(parse_url(f"https://{host}/"))
    assert refused.value.code == net.Code.HOST_NOT_ALLOWED


def test_a_host_list_matches_whole_labels_in_any_spelling() -> None:
    entries = parse_host_list(["API.a.example.", "*.b.example", "bücher.example"])

    assert is_listed("api.a.example", entries)
    assert is_listed("x.b.example", entries)
    assert is_listed("x.y.b.example", entries)
    assert is_listed("xn--bcher-kva.example", entries)
    assert not is_listed("b.example", entries)
    assert not is_listed("evilb.example", entries)
    assert not is_listed("api.a.example.evil.example", entries)


@pytest.mark.parametrize("port", [6379, 22, 5432])
def test_ports_off_the_list_are_the_operators_to_open(port: int) -> None:
    url = parse_url(f"http://a.example:{port}/")

    with pytest.raises(net.Refused) as refused:
        net.Policy.tenant().check_url(url)
    assert refused.value.code == net.Code.PORT_NOT_ALLOWED
    net.Policy.tenant(allow_ports=[port]).check_url(url)


def test_the_operator_can_demand_https_everywhere() -> None:
    policy = net.Policy.tenant(https_only=True)

    policy.check_url(parse_url("https://a.example/"))
    with pytest.raises(net.Refused) as refused:
        policy.check_url(parse_url("http://a.example/"))
    assert refused.value.code == net.Code.SCHEME_NOT_ALLOWED


def test_an_operators_range_opens_addresses_and_internal_names_that_lead_there() -> None:
    policy = net.Policy.tenant(allow_cidrs=["10.1.0.0/16"], allow_ports=[11434])
    policy.check_url(parse_url("http://vllm:11434/v1"))

    assert policy.check_answer("vllm", ["10.1.2.3"]) == ["10.1.2.3"]
    for host, answer in (
        ("vllm", "10.2.0.1"),
        ("vllm", "8.8.8.8"),
        ("a.example", "10.2.0.1"),
        ("a.example", "127.0.0.1"),
    ):
        with pytest.raises(net.Refused):
            policy.check_answer(host, [answer])


def test_a_bad_range_names_itself() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/8"):
        net.Policy.tenant(allow_cidrs=["10.0.0.1/8"])
