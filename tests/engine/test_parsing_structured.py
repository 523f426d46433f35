"""Calls that a server lists itself: whole, in fragments of every kind, and in the older field."""

from typing import Any

import pytest

from engine.messages import Reply
from engine.parsing import StreamParser, parse

TOOLS = [
    {"type": "function", "function": {"name": "find", "parameters": {"properties": {"q": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "get_clock"}},
]


def call(name: Any = "find", arguments: Any = "{}", call_id: Any = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def piece(index: Any = None, call_id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:
    return {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def read(*deltas: Any, reason: str = "tool_calls", tools: Any = TOOLS) -> Reply:
    parser = StreamParser(tools)
    for delta in deltas:
        parser.feed({"tool_calls": delta if isinstance(delta, list) else [delta]})
    return parser.finish(reason)


def calls_of(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    return [(found.name, found.arguments) for found in reply.calls]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"q": 1}', {"q": 1}),
        ({"q": 1}, {"q": 1}),
        ("", {}),
        ("  \n", {}),
        ("null", {}),
        (None, {}),
        ('"{\\"q\\": 1}"', {"q": 1}),
        ('"{\\"a\\": \\"\\\\u5317\\"}"', {"a": "北"}),
        ('{"q": 1, "q": 2}', {"q": 2}),
        ('{"q": 1,}', {"q": 1}),
        ('{"a": [1, 2,], "b": "x,}",}', {"a": [1, 2], "b": "x,}"}),
        ("{'a': 'it\\'s', 'b': True, 'c': None}", {"a": "it's", "b": True, "c": None}),
        ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}),
        ('```json\n{"q": 1}\n```', {"q": 1}),
        ('```\n{"q": 1}\n```\n', {"q": 1}),
        ('{"q": 1}}', {"q": 1}),
        ('{"q": 1}\nSure, doing it.', {"q": 1}),
        ('{"q": 1}<|im_end|>', {"q": 1}),
        ('{"a": \\n[1, \\n2]\\n}', {"a": [1, 2]}),
        ('{"a": "x\\n.py"}', {"a": "x\n.py"}),
        ('{"a": "\\ud83d\\ude42 \\ud83d"}', {"a": "🙂 \ufffd"}),
        ('{"\\ud83d": "\\udc00"}', {"\ufffd": "\ufffd"}),
        ('{"a": 12345678901234567890123, "b": 1e-7}', {"a": 12345678901234567890123, "b": 1e-7}),
        ('{"q": "25"}', {"q": 25}),
        ('{"q": "x"}', {"q": "x"}),
        ('{"a": "\\u0000"}', {"a": "\0"}),
    ],
)
def test_arguments_in_any_accepted_shape_become_an_object(arguments: Any, expected: Any) -> None:
    reply = parse(None, [call(arguments=arguments)], tools=TOOLS)
    assert calls_of(reply) == [("find", expected)]
    if isinstance(arguments, str):
        assert reply.calls[0].raw_arguments == arguments
        assert calls_of(read(*(piece(0, name="find", arguments=char) for char in arguments or [""]))) == [
            ("find", expected)
        ]


@pytest.mark.parametrize(
    "arguments",
    [
        *('{"a": "half of th', '{"a": 1', '{"a": 1,', "{", "[1]", "3", "nonsense", '{"a": NaN}', '{"a": 1e999}'),
        *([1], 5, True, "{a: 1}", '{"a": "b" "c"}', "[" * 5000, '{"a": ' * 5000, "9" * 5000),
    ],
    ids=lambda arguments: str(arguments)[:16],
)
def test_arguments_that_are_cut_or_no_object_make_no_call_but_are_told(arguments: Any) -> None:
    reply = parse(None, [call(arguments=arguments), call("get_clock", "{}", "c2")], tools=TOOLS, finish_reason="length")
    assert calls_of(reply) == [("get_clock", {})]
    (broken,) = reply.broken
    assert (broken.id, broken.name) == ("c1", "find")
    assert broken.reason
    assert any("find" in warning for warning in reply.warnings)
    if isinstance(arguments, str):
        assert broken.raw_arguments == arguments


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("find", "find"),
        (" find ", "find"),
        ("functions.find", "find"),
        ("functions.find:0", "find"),
        ("find<|channel|>commentary", "find"),
        ("find<｜tool▁sep｜>x", "find"),
        ("teleport", "teleport"),
    ],
)
def test_the_name_is_freed_of_what_clings_to_it(name: str, expected: str) -> None:
    assert [found.name for found in parse(None, [call(name)], tools=TOOLS).calls] == [expected]


def test_a_tool_that_is_really_called_so_keeps_its_name() -> None:
    tools = [{"type": "function", "function": {"name": "functions.find"}}]
    assert [found.name for found in parse(None, [call("functions.find")], tools=tools).calls] == ["functions.find"]


@pytest.mark.parametrize("name", [None, "", "  ", 5, "<|channel|>"])
def test_a_call_without_a_name_is_none(name: Any) -> None:
    assert parse("Hi.", [call(name)], tools=TOOLS).calls == ()


def test_ids_are_kept_where_usable_and_made_up_where_not() -> None:
    entries = [call(call_id=value) for value in ("a", "a", "", None, 7, "b")]
    ids = [found.id for found in parse(None, entries).calls]
    assert (ids[0], ids[5]) == ("a", "b")
    assert all(ids)
    assert len(set(ids)) == 6


def test_finish_reason_decides_nothing_but_truncation() -> None:
    assert calls_of(parse("", [call()], tools=TOOLS, finish_reason="stop")) == [("find", {})]
    assert parse("All set.", [], tools=TOOLS, finish_reason="tool_calls") == parse("All set.", tools=TOOLS)
    assert parse(None, [call(arguments="")], tools=TOOLS, finish_reason="length").calls == ()


def test_json_in_the_text_beside_structured_calls_is_left_alone() -> None:
    text = '{"name": "find", "arguments": {"q": 1}}'
    reply = parse(text, [call("get_clock")], tools=TOOLS)
    assert (calls_of(reply), reply.text) == ([("get_clock", {})], text)
    parser = StreamParser(TOOLS)
    shown = "".join(parser.feed({"content": char}) for char in text + "\nmore")
    parser.feed({"tool_calls": [piece(0, "c1", "get_clock", "{}")]})
    assert parser.finish("stop").text == text + "\nmore"
    assert (text + "\nmore").startswith(shown)


def test_the_older_field_is_one_call_and_gives_way_to_the_list() -> None:
    legacy = {"name": "find", "arguments": '{"q": 3}'}
    assert calls_of(parse(None, function_call=legacy, finish_reason="function_call")) == [("find", {"q": 3})]
    assert calls_of(parse(None, [call("get_clock")], function_call=legacy)) == [("get_clock", {})]
    parser = StreamParser(TOOLS)
    for part in ({"name": "find", "arguments": ""}, {"arguments": '{"q":'}, {"arguments": " 7}"}):
        parser.feed({"content": None, "function_call": part})
    assert calls_of(parser.finish("function_call")) == [("find", {"q": 7})]


STREAMS = {
    "as documented": (
        [piece(0, "a", "find", ""), piece(0, arguments='{"q"'), piece(0, arguments=": 1}"),
         piece(1, "b", "get_clock", "{}")],
        [("find", {"q": 1}), ("get_clock", {})],
    ),
    "id, type and name with every fragment": (
        [piece(0, "a", "find", '{"q'), piece(0, "a", "find", '": '), piece(0, "a", "find", "1}"),
         piece(0, "a", "find", "\n")],
        [("find", {"q": 1})],
    ),
    "name in pieces": ([piece(0, "a", "fi"), piece(0, name="nd"), piece(0, arguments="{}")], [("find", {})]),
    "name grows": ([piece(0, "a", "fi"), piece(0, name="find"), piece(0, arguments="{}")], [("find", {})]),
    "another name after the arguments began": (
        [piece(0, "a", "find", '{"q"'), piece(0, name="x", arguments=": 1}")], [("find", {"q": 1})],
    ),
    "no index": (
        [piece(None, "a", "find", '{"q":'), piece(arguments=" 1}"), piece(None, "b", "get_clock", "{}")],
        [("find", {"q": 1}), ("get_clock", {})],
    ),
    "no index and no ids": (
        [piece(name="find", arguments='{"q": 1}'), piece(name="find", arguments='{"q": 2}')],
        [("find", {"q": 1}), ("find", {"q": 2})],
    ),
    "one index, several ids": (
        [piece(0, f"x{number}", "find", f'{{"q": {number}}}') for number in range(3)],
        [("find", {"q": number}) for number in range(3)],
    ),
    "one index, no ids": (
        [piece(0, name="find", arguments='{"q": 1}'), piece(0, name="get_clock", arguments="{}")],
        [("find", {"q": 1}), ("get_clock", {})],
    ),
    "late id": ([piece(0, name="find", arguments="{"), piece(0, "z", arguments="}")], [("find", {})]),
    "interleaved": (
        [[piece(0, "a", "find", ""), piece(1, "b", "find", "")],
         piece(1, arguments='{"q":'), piece(0, arguments='{"q":'),
         piece(1, arguments=" 2}"), piece(0, arguments=" 1}")],
        [("find", {"q": 1}), ("find", {"q": 2})],
    ),
    "index out of order": (
        [piece(1, "b", "get_clock", "{}"), piece(0, "a", "find", "{}")], [("find", {}), ("get_clock", {})],
    ),
    "gaps": (
        [piece(1, "a", "find", '{"q": 2}'), piece(7, "b", "find", '{"q": 3}')],
        [("find", {"q": 2}), ("find", {"q": 3})],
    ),
    "drifting index": (
        [piece(0, "a", "find", ""), piece(1, arguments='{"q"'), piece(2, arguments=": 1"), piece(3, arguments="}")],
        [("find", {"q": 1})],
    ),
    "an index twice in one chunk": (
        [[piece(0, "a", "find", ""), piece(0, arguments='{"q":')], piece(0, arguments=" 5}")], [("find", {"q": 5})],
    ),
    "nothing new": (
        [piece(0, "a", "get_clock"), piece(0, "", "", ""), {"index": 0, "function": None}, {}, None, [], piece(0)],
        [("get_clock", {})],
    ),
    "an object": ([piece(0, "a", "find", {"q": 1})], [("find", {"q": 1})]),
    "a pair cut in two": (
        [piece(0, "a", "note", '{"t": "\\ud83'), piece(0, arguments="c\\udf"), piece(0, arguments='89!"}')],
        [("note", {"t": "🎉!"})],
    ),
    "a raw pair cut in two": (
        [piece(0, "a", "note", '{"t": "\ud83c'), piece(0, arguments='\udf89!"}')], [("note", {"t": "🎉!"})],
    ),
    "cut in the second": (
        [piece(0, "a", "find", "{}"), piece(1, "b", "find", '{"q')], [("find", {})],
    ),
    "fragments of nothing": ([piece(0, arguments="}"), piece(3)], []),
}  # fmt: skip


@pytest.mark.parametrize(("deltas", "expected"), [pytest.param(*row, id=name) for name, row in STREAMS.items()])
def test_fragments_are_put_together(deltas: list[Any], expected: list[Any]) -> None:
    reply = read(*deltas, reason="length" if expected == [("find", {})] and len(deltas) == 2 else "tool_calls")
    assert calls_of(reply) == expected
    assert len({found.id for found in reply.calls}) == len(expected)


def test_a_late_id_is_the_id() -> None:
    reply = read(piece(0, name="find", arguments="{"), piece(0, "z", arguments="}"))
    assert [found.id for found in reply.calls] == ["z"]


def test_tags_that_leak_around_a_structured_call_are_not_shown() -> None:
    parser = StreamParser(TOOLS)
    deltas = [
        {"content": "Now.\n<too"},
        {"content": "l_call>"},
        {"tool_calls": [piece(0, "a", "find", "{}")]},
        {"content": "</tool"},
        {"content": "_call>"},
        None,
        {},
    ]
    shown = "".join(parser.feed(delta) for delta in deltas)
    assert (shown, parser.finish("tool_calls").text) == ("Now.\n", "Now.\n")


def test_reasoning_fields_are_neither_shown_nor_searched() -> None:
    parser = StreamParser(TOOLS)
    draft = '<tool_call>{"name": "find"}</tool_call>'
    assert parser.feed({"reasoning_content": draft}) == ""
    assert parser.feed({"reasoning": " more", "content": "It is 4."}) == "It is 4."
    reply = parser.finish("stop")
    assert (reply.calls, reply.text, reply.reasoning) == ((), "It is 4.", draft + " more")


def test_content_in_parts_is_read_as_text_and_reasoning() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hello."}]
    reply = parse(parts)
    assert (reply.text, reply.reasoning) == ("Hello.", "hm")


def test_a_character_that_two_deltas_share_is_shown_once_it_is_whole() -> None:
    parser = StreamParser()
    assert [parser.feed(text) for text in ("x\ud83d", "\ude42y", "\ud83d")] == ["x", "🙂y", ""]
    assert parser.finish().text == "x🙂y\ufffd"


def test_many_calls_and_fragments_take_linear_time() -> None:
    deltas = [piece(number, f"c{number}", "find", "{}") for number in range(20_000)]
    assert len(read(*deltas).calls) == 20_000
    repeated = [piece(0, "a", "find", '{"t": "')] + [piece(0, "a", "find", "}") for _ in range(20_000)]
    assert len(read(*repeated, piece(0, arguments='"}')).calls) == 1
