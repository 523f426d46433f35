"""What holds for every text: how it is cut makes no difference, nothing raises, plain text stays as it is."""

import re
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.messages import Reply
from engine.parsing import StreamParser, marks, parse
from engine.parsing.formats import FORMATS

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in {
        "get_tide": {"port": {"type": "string"}, "days": {"type": "integer"}},
        "save_note": {"text": {"type": "string"}, "meta": {"type": "object"}},
        "get_clock": {},
    }.items()
]

_BITS = [
    *('{"name": "get_tide", "arguments": {"port": "A"}}', '{"name": "get_clock", "parameters": {}}', '{"name": "'),
    *("get_tide", "get_clock", "save_note", "nope", "port", "A", "1", "true", "hello world", " ", "\n", "\n\n", "  "),
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"',
        "'",
        ",",
        ":",
        ";",
        "=",
        "`",
        "```",
        "```json\n",
        "~~~",
        "\\",
        "\\n",
        "<",
        ">",
    ),
    *("function", "name", "call:get_tide{", "port:", "functions.get_tide:0", "to=functions.get_tide", " json", "tools"),
    *("<parameter=port>", "<parameter=", '<parameter name="port">', "get_tide>", '"get_tide">', "get_tide[ARGS]"),
    *(
        '[get_tide(port="A")]',
        "get_tide.call(port='A')",
        "analysis",
        "commentary ",
        "final",
        "invoke",
        "\ud83d",
        "é",
        "🙂",
    ),
    *('call tool="get_tide" index="1"', 'argument key="port" type="string"', ": get_tide\n", "/>", "</think"),
]
_MARKS = [opening for form in FORMATS for opening in (*form.opens, *form.closes)]
_OTHERS = [*marks.REASONING, *marks.REASONING_END_SET, *marks.PARTS, *marks.SPECIAL_TOKENS]
messy = st.lists(
    st.one_of(st.sampled_from(_BITS), st.sampled_from(_MARKS), st.sampled_from(_OTHERS), st.text(max_size=4)),
    max_size=30,
).map("".join)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(_BITS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def essence(reply: Reply) -> Any:
    return reply.text, reply.reasoning, [(call.name, call.arguments, call.raw_arguments) for call in reply.calls]


def stream(text: str, cuts: list[int], tools: Any, reason: str) -> tuple[Reply, str]:
    parser = StreamParser(tools)
    shown = ""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for start, stop in pairwise(places):
        shown += parser.feed(text[start:stop])
    return parser.finish(reason), shown


def ends_reasoning_of_the_prompt(text: str) -> bool:
    return any(mark in text for mark in marks.REASONING_END_SET)


@settings(max_examples=600, deadline=None)
@given(
    messy,
    st.lists(st.integers(0, 500), max_size=12),
    st.sampled_from([TOOLS, None]),
    st.sampled_from(["stop", "length"]),
)
def test_any_split_of_any_text_gives_the_same_reply(text: str, cuts: list[int], tools: Any, reason: str) -> None:
    whole = essence(parse(text, tools=tools, finish_reason=reason))
    some, shown = stream(text, cuts, tools, reason)
    single, _ = stream(text, list(range(len(text) + 1)), tools, reason)
    assert essence(some) == whole
    assert essence(single) == whole
    if not ends_reasoning_of_the_prompt(text):
        assert some.text.startswith(shown)


@settings(max_examples=300, deadline=None)
@given(messy, st.sampled_from([TOOLS, None]))
def test_calls_are_named_and_text_can_be_encoded(text: str, tools: Any) -> None:
    reply = parse(text, tools=tools)
    assert all(call.name and call.id and isinstance(call.arguments, dict) for call in reply.calls)
    assert len({call.id for call in reply.calls}) == len(reply.calls)
    reply.text.encode()
    reply.reasoning.encode()


@settings(max_examples=300, deadline=None)
@given(anything, anything, anything, anything, st.text(max_size=8) | st.none())
def test_nothing_raises_on_a_message_of_any_shape(
    content: Any, tool_calls: Any, tools: Any, function_call: Any, reason: str | None
) -> None:
    parse(content, tool_calls, tools=tools, finish_reason=reason, function_call=function_call)


fragment = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 3) | st.none() | anything,
        "id": st.sampled_from(["a", "b", ""]) | st.none() | anything,
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["get_tide", "get_", "tide"]) | st.none() | anything,
                "arguments": st.sampled_from(["{", "}", '"port": "A"', "{}", "", " "]) | st.none() | anything,
            },
        )
        | st.none(),
    },
)
delta = st.fixed_dictionaries(
    {},
    optional={
        "content": messy | st.none() | anything,
        "reasoning_content": st.text(max_size=5) | st.none() | anything,
        "tool_calls": st.lists(fragment | anything, max_size=3) | st.none() | anything,
        "function_call": st.none() | anything,
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(delta | st.none(), max_size=8), st.sampled_from(["stop", "length", None]))
def test_nothing_raises_on_deltas_of_any_shape(deltas: list[Any], reason: str | None) -> None:
    parser = StreamParser(TOOLS)
    for step in deltas:
        parser.feed(step)
    reply = parser.finish(reason)
    assert all(call.name and isinstance(call.arguments, dict) for call in reply.calls)
    assert len({call.id for call in reply.calls}) == len(reply.calls)


_ORDINARY = re.compile(r"[<\[{✿`~=]|functools|[\ud800-\udfff]")


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200).filter(lambda text: not _ORDINARY.search(text)), st.lists(st.integers(0, 500), max_size=8))
@example("commentary", [3])
@example(" to", [])
def test_text_without_markup_is_unchanged(text: str, cuts: list[int]) -> None:
    reply, shown = stream(text, cuts, TOOLS, "stop")
    assert (reply.text, reply.calls, reply.reasoning) == (text, (), "")
    assert text.startswith(shown)
