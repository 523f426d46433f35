"""Cutting results, and taking secrets out of them."""

import base64
import html
import json
import re
import unicodedata
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.redaction import Redactor
from engine.text import TRUNCATED, truncate, well_formed

SECRET = 'k/"é&+ =\\~<1'


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc" + TRUNCATED),
        ("ab" + "e\u0301" + "x", 3, "ab" + TRUNCATED),
        ("ab" + "e\u0301\u0302" + "x", 4, "ab" + TRUNCATED),
        ("ab" + "e\u0301" + "x", 4, "abe\u0301" + TRUNCATED),
        ("a" + "👩\u200d👩\u200d👧" + "b", 4, "a" + TRUNCATED),
        ("a" + "👍🏽" + "b", 2, "a" + TRUNCATED),
        ("a" + "🇩🇪🇫🇷" + "b", 2, "a" + TRUNCATED),
        ("a" + "🇩🇪🇫🇷" + "b", 3, "a🇩🇪" + TRUNCATED),
        ("a" + "🇩🇪🇫🇷" + "b", 4, "a🇩🇪" + TRUNCATED),
        ("a" + "\ud83d\ude00" + "b", 2, "a" + TRUNCATED),
        ("a" + "❤\ufe0f" + "b", 2, "a" + TRUNCATED),
        ("ก็็็็" + "x", 2, TRUNCATED),
        ("x", 0, TRUNCATED),
        ("", 0, ""),
    ],
)
def test_a_cut_falls_between_characters_as_readers_see_them(text: str, limit: int, kept: str) -> None:
    assert truncate(text, limit) == kept


@given(st.text(), st.integers(min_value=0, max_value=50))
def test_a_cut_text_is_a_beginning_of_the_whole_one(text: str, limit: int) -> None:
    cut = truncate(text, limit)
    if len(text) <= limit:
        assert cut == text
        return
    kept = cut.removesuffix(TRUNCATED)
    assert cut != kept
    assert text.startswith(kept)
    assert len(kept) <= limit
    if kept:
        assert unicodedata.category(text[len(kept)]) not in ("Mn", "Me", "Mc")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("é\0", "é\0"), ("a\ud83d\ude00b", "a😀b"), ("\ude00\ud83d", "\ufffd\ufffd"), ("x\ud800", "x\ufffd"), ("", "")],
)
def test_halves_of_characters_never_go_out(text: str, shown: str) -> None:
    assert well_formed(text) == shown


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").lower(),
        "".join(f"%{byte:02x}" for byte in SECRET.encode()),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps(SECRET)),
        json.dumps({"body": json.dumps({"key": SECRET})}),
        html.escape(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"user:{SECRET}".encode()).decode(),
        base64.b64encode(f"u:{SECRET}".encode()).decode(),
        base64.b64encode(f"us:{SECRET} and more".encode()).decode(),
    ],
)
def test_a_secret_is_found_in_each_spelling(spelling: str) -> None:
    text = Redactor({"KEY": SECRET}).text(f"before {spelling} after")

    assert "{secret:KEY}" in text
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert spelling not in text


@given(st.text(min_size=4, max_size=40).filter(lambda value: not re.fullmatch(r"[{}secret:KY]*", value)), st.text())
def test_no_spelling_of_any_secret_is_left_behind(value: str, around: str) -> None:
    redactor = Redactor({"KEY": value})
    raw = value.encode("utf-8", "surrogatepass")
    spellings = (value, quote(raw, safe=""), quote_plus(raw), json.dumps(value)[1:-1], base64.b64encode(raw).decode())
    text = around + "|" + "|".join(spellings) + "|" + around
    clean = redactor.text(text)

    for spelling in spellings:
        assert spelling not in clean.replace("{secret:KEY}", "")


def test_values_are_cleaned_with_their_keys_and_lists() -> None:
    redactor = Redactor({"KEY": "canary-7f3a9"})

    assert redactor.value({"canary-7f3a9": ["x canary-7f3a9", 1, None, {"a": "canary-7f3a9"}]}) == {
        "{secret:KEY}": ["x {secret:KEY}", 1, None, {"a": "{secret:KEY}"}]
    }
    assert redactor.data(b"\xff canary-7f3a9") == b"\xff {secret:KEY}"


def test_the_longer_of_two_secrets_goes_first() -> None:
    assert Redactor({"A": "abcd", "B": "abcd-efgh"}).text("abcd-efgh abcd") == "{secret:B} {secret:A}"


def test_short_values_are_no_secrets() -> None:
    assert Redactor({"A": "", "B": "abc"}).text("abc") == "abc"


def test_a_secret_learnt_later_is_redacted_as_well() -> None:
    redactor = Redactor({"A": "canary-1"}).with_secret("B", "canary-2")

    assert redactor.text("canary-1 canary-2") == "{secret:A} {secret:B}"
    assert redactor.with_secret("B", "canary-2") is redactor
