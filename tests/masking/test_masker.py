"""What rules make of texts: pure, so every spelling of a value is tried here."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenants.masking.masker import MARK, Masker, Memory, Rule, UnknownMark, restored, restored_prose
from tenants.masking.paths import PathFault, parse_path
from tenants.masking.patterns import PRESETS, PatternFault, pattern_of
from tenants.masking.rewriting import spelled

EMAIL = Rule(name="email", kind="pattern", expression="preset:email")
NAME = Rule(name="name", kind="key", expression="name, Full-Name")
CARD = Rule(name="card", kind="path", expression="$.payment.card")


def masker(*rules: Rule) -> Masker:
    return Masker(rules or (EMAIL, NAME, CARD), b"salt")


def test_the_rest_stays_spelled_as_it_was() -> None:
    text = '{ "b":1.10,\n"a" :"x\\u0041\\/", "mail":"ada@example.com", "big": 12345678901234567890 }'
    masked = masker().document(text)
    assert "ada@" not in masked
    assert masked.startswith('{ "b":1.10,\n"a" :"x\\u0041\\/", "mail":"{masked:email:')
    assert masked.endswith('}", "big": 12345678901234567890 }')


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('{"name": "Ada Lovelace"}', "Ada"),
        ('{"fullName": "Ada Lovelace"}', "Ada"),
        ('{"deep": [{"full_name": {"first": "Ada"}}]}', "Ada"),
        ('{"payment": {"card": 4111111111111111}}', "4111"),
        ('{"payment": {"card": [4111, {"x": 1111}]}, "n": 1}', "4111"),
        ('{"x": "write to ada@example.com, please"}', "ada@"),
        ('{"ada@example.com": 1}', "ada@"),
        ('{"x": "{\\"name\\": \\"Ada\\"}"}', "Ada"),
        ('{"x": "{\\"y\\": \\"{\\\\\\"name\\\\\\": \\\\\\"Ada\\\\\\"}\\"}"}', "Ada"),
        ('"plain text of ada@example.com"', "ada@"),
        ('"[not JSON: ada@example.com]"', "ada@"),
        ('{"x": "\\u0061da@example.com"}', "da@"),
    ],
)
def test_what_a_rule_names_is_gone_and_comes_back(text: str, secret: str) -> None:
    memory: Memory = {}
    masked = masker().document(text, memory)
    assert secret not in masked
    assert MARK.search(masked)
    json.loads(masked)
    assert json.loads(restored(masked, memory)) == json.loads(text)


def test_a_conversation_keeps_its_structure_and_loses_its_data() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": '{"name": "Ada Lovelace"}'}}
    messages = [
        {"role": "user", "name": "guest", "content": "I am Ada Lovelace"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"full_name": "Ada Lovelace", "room": 7}'},
    ]
    masked = masker().structure(json.dumps(messages))
    assert "Lovelace" not in masked
    read = json.loads(masked)
    assert read[0]["name"] == "guest"
    assert read[1]["tool_calls"][0]["function"]["name"] == "book"
    assert json.loads(read[2]["content"])["room"] == 7
    assert len({mark.group() for mark in MARK.finditer(masked)}) == 1  # one value, one mark


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_text_that_was_cut_tells_no_half(cut: int) -> None:
    text = '{"note": "for ada@example.com and more", "name": "Ada Lovelace"}'
    masked = masker().document(text[:cut])
    assert "ada" not in masked
    assert "Lovel" not in masked


def test_marks_tell_equal_values_and_differ_between_salts() -> None:
    one, two = masker(EMAIL).prose("ada@example.com"), Masker([EMAIL], b"other").prose("ada@example.com")
    assert one == masker(EMAIL).prose("ada@example.com") != two


def test_what_an_argument_hides_an_error_does_not_say() -> None:
    memory: Memory = {}
    rules = masker(NAME)
    rules.document('{"name": "Ada Lovelace"}', memory)
    assert "Lovelace" not in rules.prose("No guest Ada Lovelace", memory)
    assert "Lovelace" not in rules.structure('[{"role": "user", "content": "Ada Lovelace here"}]', memory)


def test_a_sentence_keeps_its_words_and_loses_what_it_quotes() -> None:
    assert masker(NAME).sentence("The reply says “Ada ”x” Lovelace”, which no result holds.") == (
        "The reply says “…”, which no result holds."
    )


def test_only_marks_that_were_shown_come_back() -> None:
    memory: Memory = {}
    masked = masker().document('{"name": "Ada", "age": 36}', memory)
    moved = json.dumps({"args": {"equal": json.loads(masked)["name"]}, "text": masked})
    assert json.loads(restored(moved, memory)) == {"args": {"equal": "Ada"}, "text": '{"name": "Ada", "age": 36}'}
    with pytest.raises(UnknownMark):
        restored('{"name": "{masked:name:00000000}"}', memory)
    assert restored_prose("see {masked:name:00000000}", memory) == "see {masked:name:00000000}"


def test_marks_of_what_was_stored_masked_stand_for_themselves() -> None:
    memory: Memory = {}
    text = '{"x": "{masked:email:deadbeef}", "name": "{masked:name:deadbeef}"}'
    assert masker().document(text, memory) == text
    assert restored(text, memory) == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["ada@example.com", "Ada", '{"name": "Ada"}', "+44 20 7946 0018", "{masked:name:12345678}"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=5) | st.sampled_from(["name", "payment", "card", "content"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(json_values, st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_value_comes_back_whole(value: Any, is_data: bool) -> None:
    text = spelled(value) if isinstance(value, str) else json.dumps(value)
    rules = masker(EMAIL, NAME, CARD, Rule(name="phone", kind="pattern", expression="preset:phone"))
    memory: Memory = {}
    masked = rules.document(text, memory) if is_data else rules.structure(text, memory)
    assert "ada@example" not in masked
    assert json.loads(restored(masked, memory)) == json.loads(text)


@given(st.text(alphabet='{}[]",:\\ \nab1u0', max_size=60))
@settings(max_examples=300, deadline=None)
def test_text_that_is_no_json_is_taken_as_it_comes(text: str) -> None:
    masker().document(text)
    masker().structure(text)


def test_depth_and_width_cost_linear_time() -> None:
    assert masker().document("[" * 200_000) == "[" * 200_000
    assert masker().document('{"a":' * 100_000).count("{") == 100_000


@pytest.mark.parametrize(
    ("preset", "text", "found"),
    [
        ("email", "to ada.l+x@mail.example.co.uk.", ["ada.l+x@mail.example.co.uk"]),
        ("email", "an @ alone, a@b", []),
        ("phone", "call +44 20 7946 0018 or (020) 7946-0018", ["+44 20 7946 0018", "(020) 7946-0018"]),
        ("phone", "on 2026-03-01 12:30:00 for 1,250.00, order 100045678", []),
        ("card", "4111 1111 1111 1111 is one, 4111 1111 1111 1112 is none", ["4111 1111 1111 1111"]),
        ("iban", "DE89 3704 0044 0532 0130 00 is, DE89 3704 0044 0532 0130 01 not", ["DE89 3704 0044 0532 0130 00"]),
        ("iban", "pay DE89370400440532013000 EUR 500", ["DE89370400440532013000"]),
        ("ip-address", "from 192.0.2.17 and 2001:db8::1, version 1.2.3", ["192.0.2.17", "2001:db8::1"]),
    ],
)  # fmt: skip
def test_presets_find_what_they_say(preset: str, text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in PRESETS[preset].pattern.spans(text)] == found


@pytest.mark.parametrize("path", ["a.b", "$", "$.a[?@.b]", "$.a[1:2]", "$.a[-1]", "", "$.." + ".a" * 40])
def test_paths_that_cannot_be_followed_are_refused(path: str) -> None:
    with pytest.raises(PathFault):
        parse_path(path)


@pytest.mark.parametrize("pattern", ["(", "a*", "(?<=x)y", "(a)\\1", "x" * 600, "preset:none"])
def test_patterns_that_cannot_be_used_are_refused(pattern: str) -> None:
    with pytest.raises(PatternFault):
        pattern_of(pattern)


@pytest.mark.parametrize(
    ("path", "text", "seen"),
    [
        ("$..card", '{"a": [{"card": 1}, {"b": {"card": 2}}], "card": 3}', []),
        ("$.items[*].sku", '{"items": [{"sku": 11}, {"sku": 22}], "sku": 33}', ["33"]),
        ("$.items[1]", '{"items": [11, 22, 33]}', ["11", "33"]),
        ("$['odd name'].*", '{"odd name": {"a": 11, "b": 22}, "c": 33}', ["33"]),
    ],
)
def test_paths_name_what_they_name(path: str, text: str, seen: list[str]) -> None:
    masked = masker(Rule(name="x", kind="path", expression=path)).document(text)
    assert [
        number
        for number in ("11", "22", "33", "1}", "2}", "3}")
        if f": {number}" in masked or f", {number}" in masked or f"[{number}" in masked
    ] == seen
