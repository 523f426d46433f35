"""Numbers and dates across spellings: what is the same, what is not, and that nothing trips over any text."""

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.review.figures import Known, stated


def missing(reply: str, *, result: object = None, text: str = "") -> list[str]:
    known = Known()
    known.add_json(json.dumps(result), is_base=True)
    known.add_text(text)
    figures, dates = stated(reply)
    return known.missing([figure for figure in figures if figure.proves], dates)


@pytest.mark.parametrize(
    "reply",
    [
        "1234.5", "1,234.50", "1.234,50", "1 234,5", "1'234.50", "1’234.5", "€1,234.50", "1,234.50 EUR", "-1234.5",
        "1,234", "1.234", "1235", "1.2k", "about 1200", "circa 1.300", "123450", "61.725 and 20.575",
    ],
)  # fmt: skip
def test_a_number_is_known_in_each_spelling(reply: str) -> None:
    assert missing(reply, result={"total": 1234.5, "parts": [20, 60]}) == []


@pytest.mark.parametrize("reply", ["1,243.50", "1.243,50", "1334.5", "17.345", "about 1500", "1243k"])
def test_another_number_is_not(reply: str) -> None:
    assert missing(reply, result={"total": 1234.5}) != []


@pytest.mark.parametrize(
    "reply",
    [
        "2026-03-14", "14/03/2026", "03/14/2026", "14.3.26", "14 March", "14th of March, 2026", "March 14th", "Mar 14",
        "14 marzo 2026", "14 de marzo de 2026", "il 14 marzo", "March 15, 2026", "13 March",
    ],
)  # fmt: skip
def test_a_day_is_known_in_each_spelling(reply: str) -> None:
    """Of a moment in a zone also the days around it."""
    assert missing(reply, result={"at": "2026-03-14T23:30:00Z"}) == []


@pytest.mark.parametrize("reply", ["2026-03-24", "24/03/2026", "24 March", "14 de mayo", "14 marzo 2027", "April 14"])
def test_another_day_is_not(reply: str) -> None:
    assert missing(reply, result={"at": "2026-03-14"}) == [reply]


def test_days_are_counted_on() -> None:
    assert missing("By 28 March.", result={"sent": "2026-03-14", "days": 14}) == []
    assert missing("By 29 March.", result={"sent": "2026-03-14", "days": 14}) == ["29 March"]


@pytest.mark.parametrize("reply", ["version 2.1.3", "at 14:30", "COVID19 B2B4 H2O", "1. one\n2) two", "in 2026", "12"])
def test_what_proves_nothing_is_passed_over(reply: str) -> None:
    assert missing(reply) == []


HARD = [
    "1",
    ".",
    ",",
    " ",
    "\n",
    "a",
    "-",
    "e9",
    "9999-12-31",
    "0000-00-00",
    "```",
    "@",
    "www.",
    "May ",
    "1e999",
    "½",
    "٣",
]


@given(st.text(max_size=60) | st.lists(st.sampled_from(HARD), max_size=20).map("".join), st.text(max_size=60))
def test_no_text_trips_it(reply: str, text: str) -> None:
    missing(reply, result={"text": text, "at": reply, "n": [1, 2]}, text=text)


@pytest.mark.parametrize("piece", [*HARD, "a@", ". ", "1 ", "1 000 "])
def test_long_texts_are_read_in_one_go(piece: str) -> None:
    """A pattern that began anew at each character would not come to an end."""
    text = (piece * 64_000)[:64_000]
    missing(text[:4_000], text=text)
    stated(text)


def test_many_dates_are_compared_with_many_in_one_go() -> None:
    """Each with each, moved by each number, would be billions of pairs."""
    first = dt.date(1910, 1, 1)
    result = [str(first + dt.timedelta(days=17 * number)) for number in range(6_000)]
    known = Known()
    known.add_json(json.dumps([result, *range(20, 70)]), is_base=True)
    _, dates = stated(" ".join([result[0], *(str(dt.date(2300, 1, 1) + dt.timedelta(days=n)) for n in range(6_000))]))
    assert len(known.missing([], dates)) == 6_000
