"""Every rule of reading calls, held by every format that has markup: each spells the same call in its own way."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.messages import Reply
from engine.parsing import StreamParser, parse

Arguments = dict[str, Any]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "count": {"type": "integer"},
                    "ratio": {"type": ["number", "null"]},
                    "sure": {"type": "boolean"},
                    "tags": {"type": "array"},
                    "meta": {"anyOf": [{"type": "object"}, {"type": "null"}]},
                },
            },
        },
    }
    for name in ("save_note", "get_clock")
]
FULL = {"text": "0042", "count": 7, "ratio": 0.5, "sure": True, "tags": ["a", {"b": 1}], "meta": {"k": [None, False]}}


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def raw(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def qwen_function(name: str, arguments: Arguments) -> str:
    parameters = "".join(f"<parameter={key}>\n{raw(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<function={name}>\n{parameters}</function>"


def invoke(name: str, arguments: Arguments) -> str:
    parameters = "".join(f'<parameter name="{key}">{raw(value)}</parameter>\n' for key, value in arguments.items())
    return f'<invoke name="{name}">\n{parameters}</invoke>'


def dsml(name: str, arguments: Arguments, bars: str = "｜DSML｜", wrapper: str = "function_calls") -> str:
    parameters = "".join(
        f'<{bars}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{raw(value)}</{bars}parameter>\n'
        for key, value in arguments.items()
    )
    return f'<{bars}{wrapper}>\n<{bars}invoke name="{name}">\n{parameters}</{bars}invoke>\n</{bars}{wrapper}>'


def glm(name: str, arguments: Arguments) -> str:
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{raw(value)}</arg_value>\n" for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma_value, value)) + "]"
    return as_json(value)


def kimi_k3(name: str, arguments: Arguments) -> str:
    def kind(value: Any) -> str:
        return "string" if isinstance(value, str) else "object"

    inner = "".join(
        f'<|open|>argument key="{key}" type="{kind(value)}"<|sep|>{raw(value)}<|close|>argument<|sep|>'
        for key, value in arguments.items()
    )
    call = f'<|open|>call tool="{name}" index="1"<|sep|>{inner}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def pythonic(name: str, arguments: Arguments) -> str:
    return f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"


def hermes(name: str, arguments: Arguments) -> str:
    return f"<tool_call>\n{as_json({'name': name, 'arguments': arguments})}\n</tool_call>"


def listed(name: str, arguments: Arguments) -> str:
    return as_json([{"name": name, "arguments": arguments}])


Spelling = Callable[[str, Arguments], str]
JSON_FORMATS: dict[str, Spelling] = {
    "hermes": hermes,
    "hermes, parameters": lambda n, a: f"<tool_call>{as_json({'name': n, 'parameters': a})}</tool_call>",
    "llama": lambda n, a: f"<|python_tag|>{as_json({'name': n, 'parameters': a})}",
    "llama function": lambda n, a: f"<function={n}>{as_json(a)}</function>",
    "mistral list": lambda n, a: f"[TOOL_CALLS] {listed(n, a)}",
    "mistral name": lambda n, a: f"[TOOL_CALLS]{n}{as_json(a)}",
    "mistral args": lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{as_json(a)}",
    "mistral id": lambda n, a: f"[TOOL_CALLS]{n}[CALL_ID]aB3dE6gH9[ARGS]{as_json(a)}",
    "deepseek v3": lambda n, a: (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
        f"{n}\n```json\n{as_json(a)}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek v3.1": lambda n, a: (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{as_json(a)}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "kimi k2": lambda n, a: (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{n}:0<|tool_call_argument_begin|>"
        f"{as_json(a)}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "harmony": lambda n, a: f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{as_json(a)}<|call|>",
    "harmony role": lambda n, a: (
        f"<|start|>assistant to=functions.{n}<|channel|>commentary<|constrain|>json<|message|>{as_json(a)}<|call|>"
    ),
    "granite": lambda n, a: f"<|tool_call|>{listed(n, a)}",
    "granite, older": lambda n, a: f"<function_call> {as_json({'name': n, 'arguments': a})}",
    "granite, plain tag": lambda n, a: f"<tool_call>{listed(n, a)}</tool_call>",
    "phi mini": lambda n, a: f"<|tool_call|>{listed(n, a)}<|/tool_call|>",
    "phi functools": lambda n, a: f"functools{listed(n, a)}",
    "gemma json": lambda n, a: f"<|tool_call|>call:{n}({as_json(a)})<tool_call|>",
    "command r": lambda n, a: (
        f"<|START_ACTION|>{as_json([{'tool_call_id': '0', 'tool_name': n, 'parameters': a}])}<|END_ACTION|>"
    ),
    "internlm": lambda n, a: f"<|action_start|><|plugin|>\n{as_json({'name': n, 'parameters': a})}<|action_end|>",
    "minimax m1": lambda n, a: f"<tool_calls>\n{as_json({'name': n, 'arguments': a})}\n</tool_calls>",
    "tool calls list": lambda n, a: f"<tool_calls>{listed(n, a)}</tool_calls>",
    "nemotron": lambda n, a: f"<TOOLCALL>{listed(n, a)}</TOOLCALL>",
    "qwen agent": lambda n, a: f"✿FUNCTION✿: {n}\n✿ARGS✿: {as_json(a)}",
}
RAW_FORMATS: dict[str, Spelling] = {
    "qwen xml": lambda n, a: f"<tool_call>\n{qwen_function(n, a)}\n</tool_call>",
    "seed": lambda n, a: f"<seed:tool_call>\n{qwen_function(n, a)}\n</seed:tool_call>",
    "minimax m2": lambda n, a: f"<minimax:tool_call>\n{invoke(n, a)}\n</minimax:tool_call>",
    "function calls": lambda n, a: f"<function_calls>\n{invoke(n, a)}\n</function_calls>",
    "dsml": dsml,
    "dsml double": lambda n, a: dsml(n, a, "｜｜DSML｜｜", "tool_calls"),
    "dsml blank": lambda n, a: dsml(n, a, "｜DSML｜ ", "calls"),
    "glm": glm,
    "kimi k3": kimi_k3,
    "gemma": lambda n, a: f"<|tool_call>call:{n}{gemma_value(a)}<tool_call|>",
}
LIST_FORMATS: dict[str, Spelling] = {
    "llama 4": lambda n, a: f"<|python_start|>{pythonic(n, a)}<|python_end|>",
    "lfm2": lambda n, a: f"<|tool_call_start|>{pythonic(n, a)}<|tool_call_end|>",
    "llama dot call": lambda n, a: f"<|python_tag|>{pythonic(n + '.call', a)[1:-1]}",
}
FORMATS = JSON_FORMATS | RAW_FORMATS | LIST_FORMATS
every = pytest.mark.parametrize("spell", [pytest.param(spell, id=name) for name, spell in FORMATS.items()])
every_json = pytest.mark.parametrize("spell", [pytest.param(spell, id=name) for name, spell in JSON_FORMATS.items()])
every_raw = pytest.mark.parametrize("spell", [pytest.param(spell, id=name) for name, spell in RAW_FORMATS.items()])


def calls_of(reply: Reply) -> list[tuple[str, Arguments]]:
    return [(call.name, call.arguments) for call in reply.calls]


def read(text: str, tools: Any = TOOLS, reason: str = "stop") -> Reply:
    """Parse as a whole, and check that a stream of single characters gives the same and shows nothing else."""
    whole = parse(text, tools=tools, finish_reason=reason)
    parser = StreamParser(tools)
    shown = "".join(parser.feed(char) for char in text)
    streamed = parser.finish(reason)
    assert (calls_of(streamed), streamed.text) == (calls_of(whole), whole.text)
    assert streamed.text.startswith(shown)
    return whole


@every
def test_a_call_between_sentences_is_taken_and_the_sentences_stay(spell: Spelling) -> None:
    reply = read(f"Before. {spell('save_note', FULL)}\nAfter.")
    assert calls_of(reply) == [("save_note", FULL)]
    assert reply.text == "Before. \nAfter."


@every
def test_a_call_without_arguments_has_an_empty_object(spell: Spelling) -> None:
    assert calls_of(read(spell("get_clock", {}))) == [("get_clock", {})]


@every
def test_an_unknown_name_in_markup_is_still_a_call(spell: Spelling) -> None:
    reply = read("So: " + spell("teleport", {"text": "Mars"}))
    assert calls_of(reply) == [("teleport", {"text": "Mars"})]
    assert reply.text == "So: "


@every
def test_markup_works_without_any_tools(spell: Spelling) -> None:
    assert calls_of(read(spell("teleport", {"text": "Mars"}), tools=None)) == [("teleport", {"text": "Mars"})]


@every
def test_calls_in_a_row_stay_apart_and_in_order(spell: Spelling) -> None:
    texts = ["a", "b", "a"]
    reply = read("\n".join(spell("save_note", {"text": text}) for text in texts))
    assert calls_of(reply) == [("save_note", {"text": text}) for text in texts]
    assert reply.text.strip() == ""
    assert len({call.id for call in reply.calls}) == 3


@every
@pytest.mark.parametrize("reason", ["length", "stop"])
def test_cut_anywhere_it_is_the_whole_call_or_none_and_nothing_of_it_shows(spell: Spelling, reason: str) -> None:
    if spell is glm and reason == "stop":
        pytest.skip("a model that stops after a whole argument has only left out the end of the wrapper")
    arguments = {"text": "rm -r ./out put", "tags": ["x"]}
    block = spell("save_note", arguments)
    for end in range(len(block)):
        reply = parse("Before. " + block[:end], tools=TOOLS, finish_reason=reason)
        assert calls_of(reply) in ([], [("save_note", arguments)]), block[:end]
        leftover = reply.text.removeprefix("Before. ").strip()
        if leftover:  # a tag of ordinary characters that is not whole is text
            assert block.startswith(leftover), block[:end]
            assert leftover == block[:end], leftover
            assert len(leftover) < len("<|tool_calls_section_begin|>")
            assert not reply.calls


@every
def test_a_draft_in_closed_reasoning_is_no_call(spell: Spelling) -> None:
    draft, final = spell("save_note", {"text": "draft"}), spell("save_note", {"text": "final"})
    reply = read(f"<think>\nMaybe {draft} - no.\n</think>\nNow.\n{final}")
    assert calls_of(reply) == [("save_note", {"text": "final"})]
    assert reply.text.strip() == "Now."
    assert "Maybe" in reply.reasoning


@every
def test_a_call_in_reasoning_that_never_ends_is_a_call(spell: Spelling) -> None:
    reply = read("<think>I need it.\n" + spell("save_note", {"text": "x"}))
    assert calls_of(reply) == [("save_note", {"text": "x"})]
    assert (reply.text, reply.reasoning) == ("", "I need it.")


@every
def test_reasoning_that_the_prompt_opened_takes_its_drafts_along(spell: Spelling) -> None:
    draft, final = spell("save_note", {"text": "draft"}), spell("save_note", {"text": "final"})
    reply = parse(f"First {draft} perhaps.</think>Now {final}", tools=TOOLS)
    assert calls_of(reply) == [("save_note", {"text": "final"})]
    assert reply.text == "Now "


@every
def test_in_a_fence_a_call_to_no_offered_tool_is_documentation(spell: Spelling) -> None:
    text = f"The format:\n\n```xml\n{spell('NAME', {'text': 'VALUE'})}\n```\n\nNAME is the tool."
    if "```json" in text:
        text = text.replace("```xml", "````xml").replace("\n```\n\nNAME", "\n````\n\nNAME")
    for tools in (TOOLS, None):
        reply = read(text, tools=tools)
        assert (calls_of(reply), reply.text) == ([], text)


@every
def test_in_backticks_a_call_to_no_offered_tool_is_documentation(spell: Spelling) -> None:
    block = spell("NAME", {"text": "VALUE"})
    if "\n" in block:
        pytest.skip("a span of backticks ends with its line")
    text = f"It is written `{block}` in one line."
    assert (read(text).calls, read(text).text) == ((), text)


@every
def test_in_a_fence_a_call_to_an_offered_tool_is_one(spell: Spelling) -> None:
    assert calls_of(read(f"Now:\n````\n{spell('save_note', {'text': 'x'})}\n````")) == [("save_note", {"text": "x"})]


@every_json
def test_a_whole_call_within_a_string_is_text(spell: Spelling) -> None:
    value = f"write {spell('other', {'text': 'y'})} and then more"
    assert calls_of(read(spell("save_note", {"text": value}))) == [("save_note", {"text": value})]


@every_raw
def test_the_tags_of_the_format_within_a_value_are_text(spell: Spelling) -> None:
    quoted = spell("other", {"text": "y"}).replace("\n", " ").replace(">", "> or ")
    value = f"write {quoted} and then more"
    assert calls_of(read(spell("save_note", {"text": value}))) == [("save_note", {"text": value})]


@every
def test_tokens_that_end_a_turn_go_with_the_call(spell: Spelling) -> None:
    for token in ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>"):
        reply = read(f"Yes. {spell('save_note', {'text': 'x'})}{token}")
        assert calls_of(reply) == [("save_note", {"text": "x"})]
        assert reply.text == "Yes. "


@every
def test_structured_calls_win_over_markup_which_is_stripped(spell: Spelling) -> None:
    structured = [{"id": "c1", "type": "function", "function": {"name": "get_clock", "arguments": "{}"}}]
    reply = parse(f"Yes. {spell('save_note', {'text': 'x'})}", structured, tools=TOOLS)
    assert [(call.id, call.name) for call in reply.calls] == [("c1", "get_clock")]
    assert reply.text == "Yes. "


@every
def test_unicode_passes_through(spell: Spelling) -> None:
    value = "日本語 — مرحبا 👩\u200d🔧 naïve"
    assert calls_of(read(spell("save_note", {"text": value}))) == [("save_note", {"text": value})]


@every_json
def test_the_last_of_repeated_keys_wins(spell: Spelling) -> None:
    block = spell("save_note", {"text": "one", "text2": "two"}).replace("text2", "text")
    assert calls_of(read(block)) == [("save_note", {"text": "two"})]


@every_json
def test_escaped_halves_of_a_pair_become_one_character_or_none(spell: Spelling) -> None:
    block = spell("save_note", {"text": "PAIR LONE"}).replace("PAIR", r"\ud83d\ude42").replace("LONE", r"\ud83d")
    assert calls_of(read(block)) == [("save_note", {"text": "🙂 \ufffd"})]


@every_json
def test_strings_from_json_follow_the_schema(spell: Spelling) -> None:
    arguments = {"text": "[1]", "count": "25", "sure": "false", "tags": '["a"]', "ratio": "x"}
    expected = {"text": "[1]", "count": 25, "sure": False, "tags": ["a"], "ratio": "x"}
    assert calls_of(read(spell("save_note", arguments))) == [("save_note", expected)]


@every_json
@pytest.mark.parametrize(
    ("right", "wrong"),
    [('"text": "a"}', '"text": "a",}'), ('"text": "a"', "'text': 'a'"), ('"text": "a"', r'"text": \n"a"')],
    ids=["trailing comma", "single quotes", "escaped newline between tokens"],
)
def test_harmless_faults_of_json_are_repaired(spell: Spelling, right: str, wrong: str) -> None:
    block = spell("save_note", {"text": "a"})
    assert calls_of(read(block.replace(right, wrong))) == [("save_note", {"text": "a"})]


@every_json
def test_a_raw_line_break_in_a_string_is_kept(spell: Spelling) -> None:
    block = spell("save_note", {"text": "oneBREAKtwo"}).replace("BREAK", "\n\t")
    assert calls_of(read(block)) == [("save_note", {"text": "one\n\ttwo"})]


@every_json
def test_one_closing_brace_too_many_is_ignored(spell: Spelling) -> None:
    block = spell("save_note", {"text": "x"})
    at = block.rindex("}") + 1
    if block[at : at + 1] in ("]", ")"):
        pytest.skip("within a list it is another fault")
    reply = read(block[:at] + "}" + block[at:])
    assert (calls_of(reply), reply.text) == ([("save_note", {"text": "x"})], "")


@every_json
def test_integers_of_any_size_keep_their_digits(spell: Spelling) -> None:
    digits = "98765432109876543210987" * 20
    assert calls_of(read(spell("save_note", {"count": int(digits)}))) == [("save_note", {"count": int(digits)})]


@every_raw
def test_values_between_tags_are_verbatim(spell: Spelling) -> None:
    value = 'if a < b && c > d { "x\\n" } &amp; <![CDATA[1 < 2]]> \\ done'
    assert calls_of(read(spell("save_note", {"text": value}))) == [("save_note", {"text": value})]


@every_raw
def test_blanks_at_the_edges_of_a_value_belong_to_it(spell: Spelling) -> None:
    value = "    if ready:\n        go()\n"
    assert calls_of(read(spell("save_note", {"text": value}))) == [("save_note", {"text": value})]


@every_raw
def test_a_repeated_parameter_takes_the_later_value(spell: Spelling) -> None:
    block = spell("save_note", {"text": "one", "text2": "two"}).replace("text2", "text")
    assert calls_of(read(block)) == [("save_note", {"text": "two"})]


BROKEN_NEIGHBOURS = {
    "hermes": ("<tool_call>\n{'name': broken\n</tool_call>", hermes),
    "hermes, open string": ('<tool_call>\n{"name": "a", "arguments": {"x": "1}}\n</tool_call>', hermes),
    "hermes, prose": ("<tool_call>\nplease call it\n</tool_call>", hermes),
    "qwen, no name": ("<tool_call>\n<function=>\n</function>\n</tool_call>", RAW_FORMATS["qwen xml"]),
    "qwen, no end": (
        "<tool_call>\n<function=a>\n<parameter=x>\n1\n</parameter>\n</tool_call>",
        RAW_FORMATS["qwen xml"],
    ),
    "qwen, open value": ("<tool_call>\n<function=a>\n<parameter=x>\n1\n</tool_call>", RAW_FORMATS["qwen xml"]),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:0<|tool_call_end|><|tool_calls_section_end|>",
        JSON_FORMATS["kimi k2"],
    ),
    "mistral": ("[TOOL_CALLS]a[ARGS]{1: }", JSON_FORMATS["mistral args"]),
    "gemma": ("<|tool_call>call:a no brace<tool_call|>", RAW_FORMATS["gemma"]),
    "nemotron": ("<TOOLCALL>[{]</TOOLCALL>", JSON_FORMATS["nemotron"]),
    "glm": ("<tool_call>two words</tool_call>", glm),
}


@pytest.mark.parametrize(("broken", "spell"), [pytest.param(*row, id=name) for name, row in BROKEN_NEIGHBOURS.items()])
def test_a_broken_call_is_dropped_and_its_neighbours_stay(broken: str, spell: Spelling) -> None:
    first, last = spell("save_note", {"text": "1"}), spell("save_note", {"text": "2"})
    reply = read(f"Go. {first}\n{broken}\n{last}\nDone.")
    assert calls_of(reply) == [("save_note", {"text": "1"}), ("save_note", {"text": "2"})]
    assert " ".join(reply.text.split()) == "Go. Done."


@pytest.mark.parametrize(
    ("types", "text", "value"),
    [
        ("string", "0042", "0042"),
        ("string", "true", "true"),
        ("string", "null", "null"),
        ("integer", "-12", -12),
        ("integer", "+5", 5),
        ("integer", "007", 7),
        ("integer", "1.5", "1.5"),
        ("integer", "ten", "ten"),
        ("integer", "9" * 5000, "9" * 5000),
        ("number", "1e3", 1000.0),
        ("number", "1e999", "1e999"),
        ("number", ".5", ".5"),
        ("boolean", "True", True),
        ("boolean", "FALSE", False),
        ("boolean", "yes", "yes"),
        ("array", "['a', True, None]", ["a", True, None]),
        ("array", "[1, 2,]", [1, 2]),
        ("array", "a, b", "a, b"),
        ("object", '{"a": {"b": []}}', {"a": {"b": []}}),
        ("object", "{'a': 'it\\'s'}", {"a": "it's"}),
        ("object", "[1]", "[1]"),
        ("object", '{"a": 1} trailing', '{"a": 1} trailing'),
        (["integer", "null"], "NULL", None),
        (["integer", "string"], "5", 5),
        (["boolean", "integer"], "1", 1),
        (["string", "null"], "null", None),
        (["object", "string"], "{broken", "{broken"),
    ],
)
def test_text_takes_the_first_of_its_types_that_it_is_in_full(types: Any, text: str, value: Any) -> None:
    options = types if isinstance(types, list) else [types]
    for schema in ({"type": types}, {"anyOf": [{"type": kind} for kind in options]}, {"$ref": "#/$defs/it"}):
        parameters = {"properties": {"p": schema}, "$defs": {"it": {"type": types}}}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        block = f"<tool_call><function=f><parameter=p>{text}</parameter></function></tool_call>"
        (call,) = parse(block, tools=tools).calls
        assert call.arguments == {"p": value}
        assert type(call.arguments["p"]) is type(value)


def test_a_parameter_that_the_schema_does_not_list_is_text() -> None:
    block = RAW_FORMATS["qwen xml"]("save_note", {"other": 7})
    assert calls_of(read(block)) == [("save_note", {"other": "7"})]


PLAIN = [
    as_json({"name": "save_note", "arguments": {"text": "x"}}),
    as_json({"name": "save_note", "parameters": {"text": "x"}}),
    as_json({"type": "function", "name": "save_note", "parameters": {"text": "x"}}),
    as_json({"type": "function", "function": {"name": "save_note", "arguments": '{"text": "x"}'}}),
    as_json([{"name": "save_note", "arguments": {"text": "x"}}]),
    json.dumps({"name": "save_note", "arguments": {"text": "x"}}, indent=2),
]


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("", "", ""),
        ("  ", "\n", ""),
        ("I do it.\n", "\nIs that right?", "I do it. Is that right?"),
        ("<think>Hm.</think>\n\n", "<|im_end|>", ""),
        ("", "\n</tool_call>", ""),
        ("", "</tool_call>", ""),
    ],
)
def test_json_on_lines_of_its_own_is_a_call_to_an_offered_tool(text: str, before: str, after: str, shown: str) -> None:
    reply = read(before + text + after)
    assert calls_of(reply) == [("save_note", {"text": "x"})]
    assert " ".join(reply.text.split()) == shown


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize("language", ["json", "", "JSON"])
def test_a_fence_that_is_the_whole_message_is_a_call(text: str, language: str) -> None:
    assert calls_of(read(f"```{language}\n{text}\n```\n")) == [("save_note", {"text": "x"})]
    assert calls_of(read(f"<think>a</think>\n```{language}\n{text}\n```<|im_end|>")) == [("save_note", {"text": "x"})]


@pytest.mark.parametrize("separator", ["\n", "; ", ";\n", "\n\n"])
def test_plain_objects_in_a_row_are_calls_each(separator: str) -> None:
    reply = read(separator.join(as_json({"name": "save_note", "arguments": {"text": text}}) for text in "ab"))
    assert calls_of(reply) == [("save_note", {"text": "a"}), ("save_note", {"text": "b"})]
    assert reply.text.strip() == ""


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize("tools", [TOOLS[1:], None, []], ids=["another tool", "none known", "none offered"])
def test_plain_json_that_names_no_offered_tool_is_text(text: str, tools: Any) -> None:
    for message in (text, f"```json\n{text}\n```", f"Look:\n{text}\nSo it is."):
        assert (read(message, tools=tools).calls, read(message, tools=tools).text) == ((), message)


NO_CALLS = [
    'Send {"name": "save_note", "arguments": {}} to it.',
    '`{"name": "save_note", "arguments": {}}`',
    'See:\n\n```json\n{"name": "save_note", "arguments": {}}\n```\n\nThat is it.',
    '```json\n{"name": "save_note", "arguments": {}}\n```\nThat is it.',
    '{"name": "save_note", "arguments": {}} is how it looks.',
    '> {"name": "save_note", "arguments": {}}',
    '- {"name": "save_note", "arguments": {}}',
    '{"name": "save_note"}',
    '{"name": "save_note", "arguments": [1]}',
    '{"name": "save_note", "version": "1.0"}',
    '{"name": "save_note", "description": "Saves.", "parameters": {}}',
    '{"name": "save_note", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}',
    '{"tool": "save_note", "arguments": {}}',
    '{"name": "save_note", "arguments": {},}',
    "{'name': 'save_note', 'arguments': {}}",
    '[{"name": "save_note", "arguments": {}}, {"name": "nope", "arguments": {}}]',
    '[{"name": "save_note", "arguments": {}}, 3]',
    "[save_note(text)]",
    "[save_note(text='x')] is Python.",
    "I call [save_note(text='x')]",
    "[save_note(text='x'), sum(a=1)]",
    "save_note(text='x')",
    "[save_note](https://example.test)",
    "<function=nope>\n<parameter=text>\nx\n</parameter>\n</function>\nand so on",
    '<invoke name="nope">\n<parameter name="text">x</parameter>\n</invoke>\nand so on',
    "call:save_note{text:<x>}",
    "to=functions.nope json{}",
    "goes to=functions.save_note if asked",
    "usage: mk <function=NAME> <parameter=KEY> [--tool_call ID]",
    "functools[key] and functools[{1: 2}]",
    "a <tool_box> and <|x|> and <｜x｜> and [TOOLS] and <function> and </param>",
    "<s>struck</s> out",
    "{}",
    "[]",
    "{",
    "[",
    "```",
    "The tag is spelt <tool",
    "It ends in <|tool_ca",
    "x = a[0]; y = {'a': [1]}\n{\n  int x;\n}\n[1, 2]\n",
    "name: save_note\narguments:\n  text: x\n",
    "  indented\n\n\tcode()  \n\n",
    "`<tool_call>` and `</tool_call>`; ``<think>`` and `<|im_end|>`",
    "~~~\n<tool_call>\n</tool_call>\n~~~\n",
]


@pytest.mark.parametrize("text", NO_CALLS)
def test_what_looks_like_a_call_survives_byte_for_byte(text: str) -> None:
    assert (read(text).calls, read(text).text) == ((), text)


STRAYS = [
    "</tool_call>", "<tool_call>", "[/TOOL_CALLS]", "[TOOL_CALLS]", "</function_calls>", "<function_calls>",
    "<|im_end|>", "</minimax:tool_call>", "<｜tool▁calls▁end｜>", "<|tool_calls_section_end|>",
    "<|tool_call_end|>", "<|python_end|>", "<tool_call|>", "<|python_tag|>", "</｜DSML｜function_calls>",
    "✿RESULT✿", "✿RETURN✿", "<|END_ACTION|>", "</TOOLCALL>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|end|>",
    "<|return|>", "</seed:tool_call>", "<|action_end|>", "<|/tool_call|>",
]  # fmt: skip


@pytest.mark.parametrize("tag", STRAYS)
def test_stray_tags_outside_code_are_dropped(tag: str) -> None:
    assert read(f"All done.\n{tag}").text.strip() == "All done."
    assert "".join(read(f"{tag}All done.").text.split()) == "Alldone."
    assert read(f"It is `{tag}` here.").text == f"It is `{tag}` here."


@pytest.mark.parametrize(
    ("text", "calls", "shown"),
    [
        ("[save_note(text='a'), get_clock()]", [("save_note", {"text": "a"}), ("get_clock", {})], ""),
        ("<think>x</think>\n[get_clock()]\n<|eom_id|>", [("get_clock", {})], ""),
        ("[save_note(text='a', count=-1, tags=[('x', 1.5)], meta={'a': None})]",
         [("save_note", {"text": "a", "count": -1, "tags": [["x", 1.5]], "meta": {"a": None}})], ""),
        ('[save_note(text="""a "quoted"\nline""")]', [("save_note", {"text": 'a "quoted"\nline'})], ""),
        ("[save_note(text='cut", [], ""),
        ("<|python_start|>[f(a1='b')]<|python_end|>", [("f", {"a1": "b"})], ""),
        ("<|python_start|>[save_note(text=), get_clock()]<|python_end|>", [("get_clock", {})], ""),
        ("<function=save_note>\n<parameter=text>\na\n</parameter>\n</function>\n\nDone.",
         [("save_note", {"text": "a"})], "Done."),
        ('<invoke name="get_clock">\n</invoke> Done.', [("get_clock", {})], "Done."),
        ('<｜DSML｜invoke name="get_clock">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', [("get_clock", {})], ""),
        ('commentary to=functions.save_note json{"text":"a"}', [("save_note", {"text": "a"})], ""),
        ('assistantcommentary to=functions.save_note code{"text":"a"}', [("save_note", {"text": "a"})], ""),
        ('So.assistant to=functions.save_notecommentary json{"text":"a"}', [("save_note", {"text": "a"})], "So."),
        ("<tool_call>get_clock", [], ""),
        ("<tool_call>save_note<arg_key>text</arg_key><arg_value>a</arg_value>", [("save_note", {"text": "a"})], ""),
        ("<tool_call>save_note<arg_key>text</arg_key><arg_value>a", [], ""),
        ('<tool_call>\n{"name": "save_note", "arguments": {"text": "a"}}\nI did it.', [("save_note", {"text": "a"})],
         "I did it."),
        ("<tool_call>\n<function=get_clock>\n</function>\nI did it.", [("get_clock", {})], "I did it."),
        ('<tool_call>\n{"name": "get_clock"}\n{"name": "save_note", "arguments": {"text": "a"}}\n</tool_call>',
         [("get_clock", {}), ("save_note", {"text": "a"})], ""),
        ("The <tool_call> tag opens it.", [], "The tag opens it."),
        ("An odd ` tick, <tool_call>{\"name\": \"get_clock\"}</tool_call> then more.", [("get_clock", {})],
         "An odd ` tick, then more."),
        ('<|channel|>final<|message|>{"name": "get_clock", "arguments": {}}<|return|>', [],
         '{"name": "get_clock", "arguments": {}}'),
        ('<|channel|>commentary to=python <|constrain|>code<|message|>print(1)<|call|>', [], ""),
        ("<|channel|>analysis<|message|>No <|call|> yet", [], ""),
        ("[THINK]draft [TOOL_CALLS]get_clock{}[/THINK]Now.[TOOL_CALLS]get_clock{}", [("get_clock", {})], "Now."),
        ("<|START_THINKING|>x<|END_THINKING|>Now.", [], "Now."),
        ("<seed:think>x</seed:think>Now.", [], "Now."),
        ("<|im_start|>assistant\nHi<|im_end|>", [], "Hi"),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nHi<|eot_id|>", [], "Hi"),
        ("<think>see `</think>` there</think>Now.", [], "Now."),
        ("<tool_call>{\"name\": \"functions.save_note:0\", \"arguments\": {}}</tool_call>", [("save_note", {})], ""),
        ("<tool_call>{\"name\": \"get_clock<|channel|>x\"}</tool_call>", [("get_clock", {})], ""),
        ("<tool_call>{\"name\": \"save_note\", \"arguments\": \"{\\\"text\\\": \\\"a\\\"}\"}</tool_call>",
         [("save_note", {"text": "a"})], ""),
        ("<tool_call>{\"name\": \"get_clock\", \"arguments\": \"\"}</tool_call>", [("get_clock", {})], ""),
        ("<tool_call>{\"arguments\": {}}</tool_call>", [], ""),
        ("✿FUNCTION✿: get_clock\n✿ARGS✿: {}\n✿RESULT✿: 4 pm\n✿RETURN✿: It is 4 pm.", [("get_clock", {})],
         "4 pm It is 4 pm."),
    ],
)  # fmt: skip
def test_forms_of_their_own(text: str, calls: list[Any], shown: str) -> None:
    reply = read(text)
    assert calls_of(reply) == calls
    assert " ".join(reply.text.split()) == shown


def test_the_id_in_the_text_is_kept_and_never_used_twice() -> None:
    text = '[TOOL_CALLS]a[CALL_ID]x1[ARGS]{}[TOOL_CALLS]b[CALL_ID]x1[ARGS]{}[TOOL_CALLS] [{"name": "c", "id": "x2"}]'
    first, second, third = (call.id for call in parse(text).calls)
    assert (first, third) == ("x1", "x2")
    assert second not in ("", "x1", "x2")


def test_arguments_are_kept_as_received_beside_the_parsed_ones() -> None:
    (call,) = parse("[TOOL_CALLS]a[ARGS]{'x':  1,}").calls
    assert (call.arguments, call.raw_arguments) == ({"x": 1}, "{'x':  1,}")


def test_reasoning_known_to_be_open_is_never_shown() -> None:
    parser = StreamParser(TOOLS, reasoning_open=True)
    shown = "".join(parser.feed(char) for char in "secret plan</think>Hello.")
    reply = parser.finish("stop")
    assert (shown, reply.text, reply.reasoning) == ("Hello.", "Hello.", "secret plan")


def test_after_the_end_nothing_more_is_taken() -> None:
    parser = StreamParser()
    parser.feed("a")
    reply = parser.finish("stop")
    assert parser.feed("b") == ""
    assert parser.finish("length") is reply


def test_a_name_that_the_output_ends_with_is_a_call_only_of_a_tool_without_parameters() -> None:
    tools = [{"type": "function", "function": {"name": "list_boxes", "parameters": {"type": "object"}}}]
    assert calls_of(read("<tool_call>list_boxes", tools)) == [("list_boxes", {})]
    assert read("<tool_call>list_boxes", tools, "length").calls == ()
    assert read("<tool_call>list_box", tools).calls == ()


@pytest.mark.parametrize("text", PLAIN)
def test_plain_json_does_not_end_reasoning_that_stays_open(text: str) -> None:
    reply = read(f"<think>Perhaps\n{text}\nor not")
    assert (reply.calls, reply.text) == ((), "")
    assert "Perhaps" in reply.reasoning


@pytest.mark.parametrize(
    "items",
    [
        '[{"name": "save_note", "arguments": {"text": "a"}}, {"name": "get_clock", "arguments": {"x": "cut',
        '[{"name": "save_note", "arguments": {"text": "a"}}, {"na',
        '[{"name": "save_note", "arguments": {"text": "a"}},',
        '[{"name": "save_note", "arguments": {"text": "a"}}, {"name": broken}]',
        '[{"name": 5}, {"name": "save_note", "arguments": {"text": "a"}}]',
        '[{"name": "x", "arguments": {"a" "b"}}, {"name": "save_note", "arguments": {"text": "a"}}]',
        '[{"name": "x", "arguments": [1]}, {"name": "save_note", "arguments": {"text": "a"}}, 7]',
    ],
)
@pytest.mark.parametrize("opening", ["[TOOL_CALLS] ", "<tool_call>", "<|tool_call|>", "<TOOLCALL>", "<|START_ACTION|>"])
def test_whole_items_of_a_list_stay_whatever_becomes_of_the_others(opening: str, items: str) -> None:
    reply = read("Yes. " + opening + items, reason="length")
    assert calls_of(reply) == [("save_note", {"text": "a"})]
    assert reply.text == "Yes. "


@pytest.mark.parametrize(
    "block",
    [
        "<tool_call>\n```json\n{}\n```\n</tool_call>",
        "[TOOL_CALLS]save_note[ARGS]```json\n{}\n```",
        "<function=save_note>\n```json\n{}\n```\n</function>",
        "✿FUNCTION✿: save_note\n✿ARGS✿: ```\n{}\n```",
        "<|channel|>commentary to=functions.save_note<|message|>```json\n{}\n```<|call|>",
    ],
)
def test_a_fence_around_the_object_is_noise(block: str) -> None:
    inner = '{"text": "use ``` x"}'
    if block.startswith("<tool_call>"):
        inner = f'{{"name": "save_note", "arguments": {inner}}}'
    reply = read(block.replace("{}", inner))
    assert (calls_of(reply), reply.text.strip()) == ([("save_note", {"text": "use ``` x"})], "")


def test_the_arguments_of_json_in_text_are_kept_as_they_were_written() -> None:
    written = '{"a":  1.0, "b": "\\u00e9"}'
    for block in (
        f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>',
        f'[TOOL_CALLS] [{{"id": "x", "name": "f", "parameters": {written}}}]',
        f'<tool_call>{{"type": "function", "function": {{"name": "f", "arguments": {written}}}}}</tool_call>',
    ):
        (call,) = parse(block).calls
        assert (call.arguments, call.raw_arguments) == ({"a": 1, "b": "é"}, written)
