"""Filling a template: a value stays the value of its place, whatever it is made of."""

import json
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine import net
from engine.net.template import parse_header_template, parse_url_template

PIECES = st.lists(
    st.sampled_from(
        [
            *["..", ".", "/", "\\", "%", "2e", "%2e", "%252e", "%2f", "?", "#", "&", "=", "{x}", "{b}", "é", "a"],
            "\0",
            "\r\n",
            "\u2028",
            "",
        ]
    )
    | st.text(max_size=4),
    max_size=6,
).map("".join)
VALUES = PIECES | st.integers() | st.floats() | st.booleans() | st.none() | st.lists(st.integers(), max_size=2)
TEMPLATE = parse_url_template("https://api.a.example:8443/v1/{a}/x{b}.{c}/end?fix=1&q={q}&r=-{r}-")


@given(st.fixed_dictionaries(dict.fromkeys("abcqr", VALUES)))
@example({"a": "..", "b": "1", "c": "1", "q": "", "r": ""})
@example({"a": "x", "b": "%2", "c": "2e", "q": "a&b=c#d", "r": "{a}"})
def test_values_change_neither_authority_nor_the_number_of_segments(arguments: dict[str, Any]) -> None:
    try:
        url = TEMPLATE.fill(arguments)
    except net.Refused:
        return
    path, _, query = url.target.partition("?")
    segments = path.split("/")

    assert (url.scheme, url.host, url.port) == ("https", "api.a.example", 8443)
    assert [segments[0], segments[1], segments[4]] == ["", "v1", "end"]
    assert len(segments) == 5
    assert not {".", ".."} & {unquote(unquote(segment)) for segment in segments}
    assert [pair.partition("=")[0] for pair in query.split("&")] == ["fix", "q", "r"]
    assert url.target.isascii()
    assert "#" not in url.target


@given(PIECES)
def test_a_query_value_comes_back_as_it_was(value: str) -> None:
    try:
        url = parse_url_template("https://a.example/?q={q}").fill({"q": value})
    except net.Refused:
        assert "\0" in value or any("\ud800" <= c <= "\udfff" for c in value)
        return
    assert unquote(url.target.removeprefix("/?q=")) == value


@given(st.text())
def test_any_text_is_a_template_or_refused(text: str) -> None:
    for candidate in (text, f"https://a.example/{text}"):
        try:
            template = parse_url_template(candidate)
        except net.Refused:
            continue
        assert template.host


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://{host}/v1", "placeholder"),
        ("https://a.example:{port}/", "placeholder"),
        ("{base}/v1", "begin with"),
        ("https://a.example/{q.__class__}", "bare name"),
        ("https://a.example/{q[0]}", "bare name"),
        ("https://a.example/{q!r}", "bare name"),
        ("https://a.example/{}", "bare name"),
        ("https://a.example/{ q }", "bare name"),
        ("https://a.example/}{", "bare name"),
        ("https://a.example/{{q}}", "bare name"),
        ("https://a.example/{secret:KEY}", "header"),
        ("https://a.example/?{k}=1", "query"),
        ("https://a.example/?{k}", "query"),
        ("https://a.example/a/../b", "segment"),
        ("https://a.example/%2e%2e/b", "segment"),
        ("https://a.example/%{x}", "percent"),
        ("https://a.example/%2{x}", "percent"),
        ("https://a.example/#frag", "fragment"),
        ("https://user:pw@a.example/", "user name"),
        ("https://a.example/a\nb", "control"),
        ("https://a.example\\@b.example/", "backslash"),
    ],
)
def test_a_template_with_room_for_mischief_cannot_be_saved(url: str, reason: str) -> None:
    with pytest.raises(net.Refused, match=reason) as refused:
        parse_url_template(url)
    assert refused.value.code in (net.Code.INVALID_URL, net.Code.SCHEME_NOT_ALLOWED)


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        ({"p": "A 17-é"}, "/A%2017-%C3%A9"),
        ({"p": 42}, "/42"),
        ({"p": 1.5}, "/1.5"),
        ({"p": True}, "/true"),
        ({"p": 10**30}, "/1000000000000000000000000000000"),
        ({"p": "a+b c"}, "/a%2Bb%20c"),
        ({"p": "~x-_."}, "/~x-_."),
    ],
)
def test_scalars_are_written_as_text(arguments: dict[str, Any], target: str) -> None:
    assert parse_url_template("https://a.example/{p}").fill(arguments).target == target


@pytest.mark.parametrize(
    "value", [None, [], {}, [1], {"a": 1}, float("nan"), float("inf"), pytest.param(10**5000, id="huge")]
)
def test_what_is_no_scalar_has_no_text(value: Any) -> None:
    with pytest.raises(net.Refused) as refused:
        parse_url_template("https://a.example/{p}").fill({"p": value})
    assert (refused.value.code, refused.value.argument) == (net.Code.INVALID_ARGUMENT, "p")


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("{a}{b}", {"a": ".", "b": "."}),
        ("{a}{b}", {"a": "%2", "b": "e"}),
        ("{a}{b}{a}{b}", {"a": "%2", "b": "e"}),
        (".{b}", {"b": "."}),
        ("%2e{a}{b}", {"a": "%25", "b": "2e"}),
    ],
)
def test_values_cannot_make_a_dot_segment_between_them(path: str, arguments: dict[str, str]) -> None:
    with pytest.raises(net.Refused) as refused:
        parse_url_template(f"https://a.example/v1/{path}/x").fill(arguments)
    assert refused.value.code == net.Code.INVALID_ARGUMENT


@pytest.mark.parametrize("passes", range(1, 6))
@pytest.mark.parametrize("value", ["%2e", "%2e%2E", "a%2fb", "a%5Cb", "a%00b"])
def test_a_value_is_judged_through_five_layers_of_encoding(value: str, passes: int) -> None:
    for _ in range(passes - 1):
        value = value.replace("%", "%25")
    with pytest.raises(net.Refused):
        parse_url_template("https://a.example/{p}/x").fill({"p": value})


def test_a_url_without_a_path_gets_one() -> None:
    assert parse_url_template("https://a.example?q={q}").fill({"q": "1"}).target == "/?q=1"


@pytest.mark.parametrize(
    "name",
    [
        *[
            "Host",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "TE",
            "Upgrade",
            "Expect",
            "Trailer",
            "Proxy-Authorization",
        ],
        *("", "a b", "a:b", "a\r\nb", "é", "{x}"),
    ],
)
def test_header_names_are_literal_and_some_are_not_for_tools(name: str) -> None:
    with pytest.raises(net.Refused) as refused:
        parse_header_template(name, "x")
    assert refused.value.code == net.Code.INVALID_HEADER


@pytest.mark.parametrize(
    "value", ["{secret:}", "{secret:a b}", "{secret:a.b}", "{a.b}", "{a!r}", "a\r\nb", "a\0", 5, None, "x" * 9000]
)
def test_bad_header_values_cannot_be_saved(value: Any) -> None:
    with pytest.raises(net.Refused) as refused:
        parse_header_template("X-A", value)
    assert refused.value.code == net.Code.INVALID_HEADER


def test_a_header_takes_arguments_and_secrets_and_reads_neither_again() -> None:
    template = parse_header_template("X-A", ' {a} {secret:KEY} {"b": 1} ')
    name, value = template.fill({"a": "{secret:KEY}", "KEY": "x"}, {"KEY": "{a}"}.__getitem__)

    assert template.names == frozenset("a")
    assert template.secrets == frozenset(["KEY"])
    assert (name, value) == ("X-A", '{secret:KEY} {a} {"b": 1}')


@given(st.text())
def test_a_header_value_never_breaks_the_line(value: str) -> None:
    template = parse_header_template("X-A", "v={a}")
    try:
        _, filled = template.fill({"a": value}, str)
    except net.Refused:
        return
    assert not set(filled) & set(map(chr, range(32)))
    filled.encode()


def test_names_may_hold_a_dash() -> None:
    template = parse_url_template("https://a.example/{patient-id}")

    assert template.names == {"patient-id"}
    assert template.fill(json.loads('{"patient-id": "7"}')).target == "/7"
