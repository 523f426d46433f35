"""Every row of the table of argument matchers: what matches, and what does not."""

import datetime as dt
from typing import Any

import pytest

from quality.cases.matchers import MATCHERS, Match, Question, Scope, matcher
from quality.cases.reading import Reader
from quality.cases.values import ABSENT, exact, read_exact

NOW = dt.datetime(2026, 11, 30, 22, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))
LONG = 10**300 + 1


def match(written: Any, value: Any, **scope: Any) -> Match:
    reader = Reader()
    read = matcher(exact(written), reader, "")
    assert not reader.faults, reader.faults
    return read.match(value if value is ABSENT else exact(value), Scope(**{"now": NOW, **scope}))


TABLE: list[tuple[Any, list[Any], list[Any]]] = [
    # A bare value means equal.
    ("7731", ["7731"], [7731, "7713", "7731 ", None, ["7731"], ABSENT]),
    (5, [5, 5.0], ["5", 5.000000001, True, [5]]),
    (1, [1, 1.0], [True, "1", False]),
    (0, [0, -0.0], [False, "", None]),
    (True, [True], [1, "true", False]),
    (None, [None], [False, 0, "", ABSENT]),
    ([1, "a"], [[1, "a"], [1.0, "a"]], [["a", 1], [1], [1, "a", 2], "a"]),
    (LONG, [LONG], [LONG + 1, float(LONG)]),
    # equal
    (
        {"equal": {"a": 1, "b": [1, 2]}},
        [{"b": [1.0, 2], "a": 1}],
        [{"a": 1}, {"a": 1, "b": [2, 1]}, {"a": True, "b": [1, 2]}],
    ),
    ({"equal": {"equal": 1}}, [{"equal": 1}], [1]),
    ({"equal": 5, "strict_type": True}, [5], [5.0, "5"]),
    ({"equal": 5.0, "strict_type": True}, [5.0], [5]),
    ({"equal": [1, {"x": 2}], "strict_type": True}, [[1, {"x": 2}]], [[1, {"x": 2.0}]]),
    # number
    ({"number": {"of": 10, "abs": 0.5}}, [10, 9.5, 10.5, 10.25], [10.500000001, 9.4, "10", True, None]),
    ({"number": {"of": 100, "rel": 0.01}}, [99, 101, 100.99], [98.99, 101.01]),
    ({"number": {"of": -100, "rel": 0.01}}, [-101, -99], [100, -102]),
    ({"number": {"of": 10, "abs": 1, "rel": 0.5}}, [5, 15, 11], [4.99, 15.01]),
    ({"number": {"of": 0.3}}, [0.3], [0.30000000000000004, 0.1 + 0.2]),
    (
        {"number": {"of": 5, "from_string": True}},
        [5, "5", " 5.0 ", "5e0", "+5"],
        ["five", "5 kg", "", "0x5", "1_0", "٥", True],
    ),
    # ranges
    ({"gt": 100}, [100.01, 101, LONG], [100, 99, "101", True, None]),
    ({"gte": 100}, [100, 100.0, 101], [99.99, "100"]),
    ({"lt": 0}, [-1, -0.5], [0, 1, "-1"]),
    ({"lte": 1}, [1, 0, -5], [1.01, True, False]),
    ({"gt": 0, "lte": 10}, [1, 10], [0, 11]),
    # one_of
    ({"one_of": ["km", "kilometers", {"regex": "k.m"}]}, ["km", "kilometers", "k m"], ["mi", "KM", ABSENT]),
    ({"one_of": [5, {"absent": True}]}, [5, ABSENT], [6, None]),
    # set and multiset
    ({"set": [1, 2]}, [[1, 2], [2, 1], [2, 1, 1.0]], [[1], [1, 2, 3], 1, "12", [1, "2"], [True, 2]]),
    ({"set": [{"gt": 0}, {"gt": 5}]}, [[1, 6], [6, 1], [6, 7]], [[6], [6, 6], [1, 2], [1, 6, 7]]),
    ({"set": []}, [[]], [[1], None]),
    ({"multiset": [1, 1, 2]}, [[1, 1, 2], [2, 1, 1.0]], [[1, 2], [1, 2, 2], [1, 1, 2, 2]]),
    ({"multiset": [{"one_of": [1, 2]}, {"one_of": [1]}]}, [[1, 2], [2, 1], [1, 1]], [[2, 2], [1], [1, 2, 1]]),
    ({"multiset": [{"equal": {"a": 1}}]}, [[{"a": 1.0}]], [[{"a": 2}]]),
    # each, has, length
    ({"each": {"gt": 0}}, [[1, 2], []], [[1, 0], 1, "1", ABSENT]),
    ({"has": "vegan"}, [["vegan"], ["a", "vegan"]], [[], ["Vegan"], "vegan", ABSENT]),
    ({"length": 2}, [[1, 2], "ab"], [[1], "abc", 2, None]),
    ({"length": {"min": 1, "max": 2}}, [[1], [1, 2]], [[], [1, 2, 3]]),
    ({"length": {"min": 1}}, ["x", [0]], ["", []]),
    # text: only what is asked is folded
    ({"text": {"of": "Rome"}}, ["Rome"], ["rome", "Rome ", 1, None]),
    ({"text": {"of": "Straße", "case": "fold"}}, ["STRASSE", "straße"], ["Strase"]),
    ({"text": {"of": "a b", "space": "collapse"}}, ["a  b", "a\n\tb"], ["ab", " a b"]),
    ({"text": {"of": "a b", "space": "ignore"}}, ["ab", " a b "], ["a-b"]),
    ({"text": {"of": "a", "trim": True}}, [" a\n"], ["a b"]),
    ({"text": {"of": "é", "unicode": "nfc"}}, ["e\u0301"], ["e"]),
    ({"text": {"of": "ﬁ", "unicode": "nfkc"}}, ["fi"], ["f i"]),
    ({"text": {"of": "don't stop!", "punct": "ignore"}}, ["dont stop", "don’t, stop..."], ["dont  stop"]),
    ({"text": {"of": "5", "punct": "ignore"}}, ["(5)", "5.", "5!"], ["-5", "5%", ".5"]),
    ({"text": {"of": "-5", "punct": "ignore"}}, ["(-5)"], ["5", "+5"]),
    ({"text": {"of": "1.5", "punct": "ignore"}}, ["1.5."], ["15", "1,5"]),
    ({"text": {"of": "2026-12-01", "punct": "ignore"}}, ["2026-12-01"], ["20261201"]),
    ({"text": {"of": "-.5", "punct": "ignore"}}, ["-.5"], [".5", "5"]),
    # regex: the whole value
    ({"regex": "[0-9]{4}"}, ["7731"], ["77310", "x7731", 7731, None, "7731\n"]),
    ({"regex": "(?i)rome|paris"}, ["ROME", "Paris"], ["Rome, Paris"]),
    ({"regex": {"pattern": "a*", "max_length": 3}}, ["", "aaa"], ["aaaa"]),
    ({"regex": "."}, ["é", "😀"], ["", "ab"]),
    # date
    (
        {"date": "2026-12-01"},
        ["2026-12-01", "20261201", "2026-12-01T23:59:59Z", "2026-12-01T00:00:00+09:00"],
        ["2026-12-02", "01.12.2026", 20261201, "soon", ""],
    ),
    (
        {"date": "2026-12-01T10:00:00Z"},
        ["2026-12-01T10:00:00+00:00", "2026-12-01T11:00:00+01:00", "2026-12-01t10:00:00z"],
        ["2026-12-01T10:00:01Z", "2026-12-01"],
    ),
    (
        {"date": {"of": "2026-12-01T10:00:00Z", "tolerance": "90s"}},
        ["2026-12-01T10:01:30Z", "2026-12-01T09:58:30Z"],
        ["2026-12-01T10:01:31Z"],
    ),
    ({"date": {"of": "2026-12-01", "tolerance": "1d"}}, ["2026-11-30", "2026-12-02"], ["2026-12-03"]),
    ({"date": "tomorrow"}, ["2026-12-01", "2026-12-01T09:00:00+01:00"], ["2026-11-30", "2026-12-02"]),
    ({"date": "today+7d"}, ["2026-12-07"], ["2026-12-08"]),
    (
        {"date": {"of": "now+2h", "tolerance": "5m"}},
        ["2026-12-01T00:30:00+01:00", "2026-11-30T23:34:00Z", "2026-12-01T00:31:00"],
        ["2026-12-01T02:30:00Z"],
    ),
    ({"date": "yesterday"}, ["2026-11-29"], ["2026-11-30"]),
    # normal forms
    (
        {"phone": "+49 30 123-456"},
        ["+4930123456", "0049 (30) 123 456", "tel:+49-30-123456"],
        ["030123456", "+4930123457", 4930123456],
    ),
    (
        {"email": "Ada@Example.org"},
        ["ada@example.org", "mailto:ada@example.org", " <ADA@example.org> "],
        ["ada@example.com", "a.da@example.org", "ada"],
    ),
    (
        {"url": "https://Example.org"},
        ["HTTPS://example.org/", "https://example.org:443", "https://example.org"],
        ["http://example.org", "https://example.org/a", "https://example.org:8443", "example.org"],
    ),
    (
        {"url": "https://example.org/a%20b?x=%7e"},
        ["https://example.org/a b?x=~"],
        ["https://example.org/a%2Fb?x=~", "https://example.org/a+b?x=~"],
    ),
    # schema
    ({"schema": {"type": "integer", "minimum": 3}}, [3, 4.0], [2, "3", 3.5, ABSENT]),
    (
        {"schema": {"$defs": {"n": {"type": "number"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}},
        [[1, 2.5]],
        [["1"]],
    ),
    ({"schema": False}, [], [1, None]),
    # object
    ({"object": {"fields": {"a": {"gt": 0}}}}, [{"a": 1}], [{"a": 0}, {"a": 1, "b": 2}, {}, [], ABSENT]),
    (
        {"object": {"fields": {"a": 1, "b": {"absent": True}}, "extra": "allow"}},
        [{"a": 1}, {"a": 1, "c": 3}],
        [{"a": 1, "b": 1}],
    ),
    (
        {"object": {"fields": {"a": {"object": {"fields": {"b": {"ignore": True}}}}}}},
        [{"a": {"b": 1}}, {"a": {}}],
        [{"a": {"c": 1}}],
    ),
    # presence
    ({"ignore": True}, [1, None, ABSENT, {}], []),
    ({"present": True}, [1, None, ""], [ABSENT]),
    ({"absent": True}, [ABSENT], [1, None]),
    # combining
    ({"not": {"equal": 5}}, [6, "5", ABSENT], [5, 5.0]),
    ({"not": {"absent": True}}, [1, None], [ABSENT]),
    ({"all": [{"present": True}, {"not": 5}]}, [6], [5, ABSENT]),
    ({"regex": "a.*", "length": {"max": 2}}, ["ab"], ["abc", "b"]),
]


@pytest.mark.parametrize(("written", "value"), [(written, value) for written, good, _ in TABLE for value in good])
def test_matches(written: Any, value: Any) -> None:
    assert match(written, value).ok is True


@pytest.mark.parametrize(("written", "value"), [(written, value) for written, _, bad in TABLE for value in bad])
def test_does_not_match(written: Any, value: Any) -> None:
    found = match(written, value)
    assert found.ok is False
    assert found.misses


def test_every_matcher_is_in_the_table() -> None:
    used = {name for written, _, _ in TABLE if isinstance(written, dict) for name in written}
    assert set(MATCHERS) - used == {"judge"}


def test_numbers_are_exact() -> None:
    assert match(0.1, read_exact("0.1")).ok
    assert not match(read_exact("0.10000000000000000001"), read_exact("0.1")).ok
    assert match(read_exact("1e2"), read_exact("100.00")).ok
    big = read_exact("123456789012345678901234567890")
    assert match(big, big).ok
    assert not match(big, big + 1).ok


def test_null_and_left_out_are_joined_only_where_the_case_says_so() -> None:
    assert match({"equal": {"a": 1}}, {"a": 1, "b": None}).ok is False
    assert match({"equal": {"a": 1}}, {"a": 1, "b": None}, null_is_absent=True).ok
    assert match(None, ABSENT, null_is_absent=True).ok
    assert match({"object": {"fields": {"a": 1}}}, {"a": 1, "b": None}, null_is_absent=True).ok


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x"])
def test_no_pattern_can_hang(pattern: str) -> None:
    assert match({"regex": pattern}, "a" * 40 + "!").ok is False
    assert match({"regex": pattern}, "a" * 90_000 + "!").ok is False


def test_text_too_long_for_a_pattern_is_not_decided() -> None:
    found = match({"regex": "a*"}, "a" * 100_001)
    assert (found.ok, found.misses[0].code) == (None, "check_timeout")
    assert match({"not": {"regex": "a*"}}, "a" * 100_001).ok is None


def test_a_schema_whose_pattern_takes_too_long_is_not_decided() -> None:
    found = match({"schema": {"pattern": "(a+)+$"}}, "a" * 40 + "!")
    assert (found.ok, found.misses[0].code) == (None, "check_timeout")


def test_a_date_told_from_now_needs_one() -> None:
    found = match({"date": "tomorrow"}, "2026-12-01", now=None)
    assert (found.ok, found.misses[0].code) == (None, "no_now")


def test_meaning_is_asked_of_a_model_or_not_judged() -> None:
    written = {"judge": {"rubric": "Says that the parcel is late.", "of": "late", "votes": 5}}
    found = match(written, "It will take longer.")
    assert (found.ok, found.misses[0].code) == (None, "not_judged")
    asked: list[Question] = []

    def ask(question: Question) -> bool:
        asked.append(question)
        return True

    assert match(written, "It will take longer.", ask=ask).ok
    assert asked == [Question(rubric="Says that the parcel is late.", of="late", got="It will take longer.", votes=5)]
    assert match({"not": written}, "x", ask=lambda _: True).ok is False
    assert match({"one_of": ["x", written]}, "x").ok
    assert match({"all": [{"length": 1}, written]}, "xy").ok is False
    assert match({"all": [{"length": 1}, written]}, "x").ok is None


def test_a_miss_tells_the_place_inside_a_value() -> None:
    written = {"object": {"fields": {"items": {"each": {"object": {"fields": {"sku/no": "A"}}}}}}}
    (miss,) = match(written, {"items": [{"sku/no": "A"}, {"sku/no": "B"}]}).misses
    assert (miss.path, miss.expected, miss.got) == ("/items/1/sku~1no", "A", "B")


@pytest.mark.parametrize("value", ["\ud800", "a\x00b", "\udc00x"])
def test_odd_text_is_only_text(value: str) -> None:
    for written in ({"regex": "x"}, {"text": {"of": "x", "case": "fold", "punct": "ignore"}}, {"date": "today"}):
        assert match(written, value).ok is False
    for written in ({"phone": "123"}, {"email": "a@b"}, {"url": "http://a"}):
        assert match(written, value).ok is False
    assert match({"equal": value}, value).ok
