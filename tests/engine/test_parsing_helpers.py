"""The parts that all formats share: where a value ends, what is repaired, what is code, which types a schema gives."""

from collections.abc import Generator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.parsing.code import CodeContext
from engine.parsing.extent import skip_value
from engine.parsing.jsonish import repaired, replace_surrogates, strict
from engine.parsing.source import Broken, Cut, Marks, Source
from engine.parsing.toolbox import Toolbox, types_of


def drive(source: Source, reader: Generator[None, None, Any], text: str, size: int) -> Any:
    """Run a reader on text that arrives in pieces; its result, or the exception it raised."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    try:
        for piece in pieces:
            source.feed(piece)
            next(reader)
        source.final = True
        next(reader)
    except StopIteration as stop:
        return stop.value
    except (Broken, Cut) as exc:
        return type(exc)
    raise AssertionError("the reader still waits although the text is final")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("value", "rest"),
    [
        ('{"a": "}"}', " x"),
        ('{"a": [1, {"b": "]"}]}', "}"),
        ('{"a": "say \\"}\\" \\\\"}', "{"),
        ("{'a': 'it\\'s }', 'b': True,}", ""),
        ('{"a": \\n[1,\\n2]\\n}', "\\n"),
        ('{"a": "raw\nbreak\t}"}', ""),
        ("[]", "]"),
        ('"text"', "rest"),
        ("{}", "{}"),
        ("{ \n}", ""),
    ],
)
def test_a_value_ends_where_its_brackets_do(value: str, rest: str, size: int) -> None:
    source = Source()
    source.hold = 0
    assert drive(source, skip_value(source), value + rest, size) is None
    assert source.pos == len(value)
    assert source.slice(0, source.pos) == value


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"a": ', Cut),
        ('{"a": "b', Cut),
        ('{"a": "b\\', Cut),
        ("[1, 2", Cut),
        ("{a: 1}", Broken),
        ('{"a" "b"}', Broken),
        ('{"a": <x>}', Broken),
        ('{"a": 1]', Broken),
        ('{"a": "b" c}', Broken),
        ("[" * 101, Broken),
        ("\\x", Broken),
        ("}", Broken),
    ],
)
def test_what_can_be_no_value_is_told_from_what_is_cut_off(text: str, outcome: Any, size: int) -> None:
    source = Source()
    assert drive(source, skip_value(source), text, size) is outcome


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("[1, 2, ]", [1, 2]),
        ("{'a': True, 'b': None, 'c': (1, 2)}", {"a": True, "b": None, "c": [1, 2]}),
        ('{"a": true, \'b\': "x"}', {"a": True, "b": "x"}),
        ('{"a": "\n"}', {"a": "\n"}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": 1} and more', {"a": 1}),
        ('{"a": "C:\\dir\\u0041\\x42\\/"}', {"a": "C:\\dirAB/"}),
        ("'a\\'b\\\\c\\n'", "a'b\\c\n"),
        ("{'a': -0.5e3}", {"a": -500.0}),
        ("{'a': 1_000}", {"a": 1000}),
    ],
)
def test_repairs_change_no_string_and_complete_nothing(text: str, value: Any) -> None:
    assert repaired(text) == value


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": 1', "[1", "{'a': }", "nan", "{a: 1}", "{'a' 1}", "01", "--1", "[" * 999]
)
def test_what_needs_more_than_a_repair_is_broken(text: str) -> None:
    with pytest.raises(Broken):
        repaired(text)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "1e999", "9" * 5000, '{"a": 1,}', '"\n"', "[" * 101 + "]" * 101])
def test_strict_is_strict(text: str) -> None:
    with pytest.raises(Broken):
        strict(text)


@given(st.text())
def test_what_had_its_surrogates_replaced_can_be_encoded(text: str) -> None:
    replace_surrogates(text).encode()
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert replace_surrogates(text) == text


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("plain ", False),
        ("`code ", True),
        ("`code` ", False),
        ("``a ` b ", True),
        ("``a ` b`` ", False),
        ("`open\nnext line ", False),
        ("```\ncode ", True),
        ("```py\ncode\n```\n", False),
        ("````\n```\n", True),
        ("~~~\n```\n", True),
        ("~~~\n~~~\n", False),
        ("   ```\n", True),
        ("text ```\n", False),
        ("``` a`b\n", False),
        ("```\n``` trailing\n", True),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_code_is_known_however_the_text_comes(text: str, inside: bool, size: int) -> None:
    context = CodeContext()
    for at in range(0, len(text), size):
        context.advance(text[at : at + size])
    assert bool(context.fence or context.span) is inside


@settings(max_examples=300)
@given(st.text(alphabet="`~ \nax", max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_the_code_context_does_not_depend_on_the_pieces(text: str, cuts: list[int]) -> None:
    whole, pieces = CodeContext(), CodeContext()
    whole.advance(text)
    for start, stop in pairwise(sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})):
        pieces.advance(text[start:stop])
    assert (whole.fence, whole.span, whole.blank, whole.empty) == (
        pieces.fence,
        pieces.span,
        pieces.blank,
        pieces.empty,
    )


@given(st.lists(st.text(alphabet="ab<>\n", max_size=6), max_size=12), st.data())
def test_a_source_gives_back_what_it_holds(pieces: list[str], data: Any) -> None:
    source = Source()
    source.hold = 0
    text = ""
    for piece in pieces:
        source.feed(piece)
        text += piece
        source.pos = data.draw(st.integers(source.pos, len(text)))
        if data.draw(st.booleans()):
            source.rewind(data.draw(st.integers(0, source.pos)))
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, len(text)))
        assert source.slice(start, stop) == text[start:stop]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_mark_within_another_waits_for_it(size: int) -> None:
    source = Source()
    assert drive(source, source.until(Marks('<|"|>', '"')), 'ab<|"|>"', size) == '<|"|>'
    assert source.pos == 2


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "integer"}, {"integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"oneOf": [{"type": "string"}, {"enum": [1, 2]}]}, {"string", "integer"}),
        ({"allOf": [{"$ref": "#/$defs/a"}]}, {"array"}),
        ({"enum": ["a", None]}, {"string", "null"}),
        ({"const": True}, {"boolean"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({"$ref": "#/$defs/loop"}, set()),
        ({"$ref": "https://example.test/x"}, set()),
        ({}, set()),
        (True, set()),
        ({"type": 5}, set()),
    ],
)
def test_a_schema_tells_its_types(schema: Any, types: set[str]) -> None:
    root = {"$defs": {"a": {"type": "array"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert types_of(schema, root) == types


@pytest.mark.parametrize("tools", [None, [], [None, 5, "x", {}, {"function": 3}, {"name": 7}], 5, {"a": 1}])
def test_tools_of_any_shape_are_taken(tools: Any) -> None:
    assert not Toolbox(tools)


def test_strings_within_objects_and_lists_follow_the_schema_too() -> None:
    parameters = {
        "properties": {"rows": {"items": {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}}}
    }
    box = Toolbox([{"name": "f", "parameters": parameters}])
    assert box.retyped("f", {"rows": [{"n": "3", "s": "3", "x": "3"}]}) == {"rows": [{"n": 3, "s": "3", "x": "3"}]}
