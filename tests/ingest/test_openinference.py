import json
from typing import Any

import pytest

from quality.ingest.records import CallRecord
from tests.ingest.helpers import lines, turns
from tests.ingest.span_files import TRACE, otlp, otlp_span

ASKED = "llm.output_messages.0.message.tool_calls.0.tool_call."
TOOL = {"tool.name": "get_order", "tool.id": "call_1", "input.value": '{"n": "7"}', "output.value": "sent"}
LLM = {
    "llm.model_name": "m",
    "llm.provider": "Azure",
    "llm.system": "openai",
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Be kind.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.content": "Order 7?",
    "llm.output_messages.0.message.role": "assistant",
    f"{ASKED}id": "call_1",
    f"{ASKED}function.name": "get_order",
    f"{ASKED}function.arguments": '{"n": "7"}',
}

VERCEL = {"ai.operationId": "ai.generateText.doGenerate"}


def span(number: int, kind: str, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As Phoenix lists it."""
    return {
        "name": "span",
        "context": {"trace_id": TRACE, "span_id": f"{number:016x}"},
        "span_kind": kind,
        "start_time": f"2026-05-03T09:45:00.{number:03}000+00:00",
        "end_time": f"2026-05-03T09:45:00.{number + 1:03}000+00:00",
        "status_code": "OK",
        "status_message": "",
        "attributes": {"openinference.span.kind": kind, **{k: v for k, v in attributes.items() if v is not None}},
        "events": [],
        **more,
    }


def page(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"data": list(spans), "next_cursor": None}


def call(*spans: dict[str, Any]) -> CallRecord:
    (turn,) = turns(page(*spans))
    (found,) = turn.calls
    return found


def nested(attributes: dict[str, Any]) -> Any:
    """Attributes as Phoenix nests them."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        *path, last = name.split(".")
        at = root
        for step in path:
            at = at.setdefault(step, {})
        at[last] = value
    return _lists(root)


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdigit() for key in value):
        return [_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _lists(held) for key, held in value.items()}


def test_flat_and_nested_attributes_pages_spans_and_otlp_are_one():
    flat = [span(1, "LLM", LLM), span(2, "TOOL", TOOL)]
    wanted = turns(page(*flat))
    deep = [{**each, "attributes": nested(each["attributes"])} for each in flat]
    assert "0" not in json.dumps(list(deep[0]["attributes"]["llm"]["output_messages"][0]))
    assert turns(page(*deep)) == wanted
    assert turns([page(flat[1]), page(flat[0])]) == turns(lines(*flat)) == wanted
    kinds = [{"openinference.span.kind": "LLM", **LLM}, {"openinference.span.kind": "TOOL", **TOOL}]
    (sent,) = turns(otlp(otlp_span(1, kinds[0]), otlp_span(2, kinds[1])))
    assert (sent.calls, sent.messages) == (wanted[0].calls, wanted[0].messages)


def test_a_call_knows_its_reply():
    found = call(span(1, "LLM", LLM | {"llm.prompt_template.version": "v5"}), span(2, "TOOL", TOOL))
    assert (found.message, found.model, found.provider) == (f"{1:016x}", "m", "azure")
    assert (found.prompt_version, found.tool_call_id, found.result) == ("v5", "call_1", '"sent"')


@pytest.mark.parametrize(
    ("given", "args", "warnings"),
    [
        ({}, '{"n": "7"}', ()),
        ({"input.value": None, "tool.parameters": '{"n": 8}'}, '{"n": 8}', ()),
        ({"tool.parameters": '{"type": "object"}'}, '{"n": "7"}', ()),
        ({"input.value": "select 1"}, '"select 1"', ("args_not_json",)),
        ({"input.value": ""}, "{}", ("args_empty",)),
        ({"input.value": None}, None, ("args_missing",)),
    ],
)
def test_arguments_are_the_input_and_parameters_only_without_one(given, args, warnings):
    found = call(span(2, "TOOL", TOOL | given))
    assert (found.args, found.warnings) == (args, warnings)


def test_a_tool_without_a_name_is_called_as_its_span():
    assert call(span(2, "TOOL", {"input.value": "{}", "output.value": "x"}, name="lookup")).tool_name == "lookup"


def test_the_exception_tells_more_than_the_status():
    failed = {"status_code": "ERROR", "status_message": "ValueError: gone"}
    event = {"name": "exception", "attributes": {"exception.message": "gone"}}
    told = TOOL | {"output.value": None}
    assert call(span(2, "TOOL", told, **failed)).error == "ValueError: gone"
    found = call(span(2, "TOOL", told, **failed, events=[event]))
    assert (found.is_error, found.error, found.warnings) == (True, "gone", ())


def test_without_tool_spans_answers_come_from_the_next_request():
    answer = {
        "llm.input_messages.2.message.role": "assistant",
        "llm.input_messages.2.message.tool_calls.0.tool_call.id": "call_1",
        "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "get_order",
        "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": '{"n": "7"}',
        "llm.input_messages.3.message.role": "tool",
        "llm.input_messages.3.message.content": '{"status": "sent"}',
        "llm.input_messages.3.message.tool_call_id": "call_1",
        "llm.output_messages.0.message.content": "Sent.",
    }
    last = {key: value for key, value in LLM.items() if not key.startswith(ASKED)} | answer
    (turn,) = turns(page(span(1, "LLM", LLM), span(2, "LLM", last)))
    (found,) = turn.calls
    assert (found.args, found.result, found.started_at) == ('{"n": "7"}', '{"status": "sent"}', None)
    assert [m["role"] for m in json.loads(turn.messages or "")] == ["user", "assistant", "tool", "assistant"]
    assert (turn.system, turn.outbound_message) == ('"Be kind."', f"{2:016x}")


def test_messages_ordered_by_contents_ask_for_tools_too():
    blocks = "llm.output_messages.0.message.contents."
    told = {key: value for key, value in LLM.items() if not key.startswith(ASKED)} | {
        f"{blocks}0.message_content.type": "text",
        f"{blocks}0.message_content.text": "Looking.",
        f"{blocks}1.message_content.type": "tool_use",
        f"{blocks}1.message_content.id": "call_1",
        f"{blocks}1.message_content.name": "get_order",
        f"{blocks}1.message_content.input": '{"n": "7"}',
    }
    (turn,) = turns(page(span(1, "LLM", told), span(2, "TOOL", TOOL)))
    assert turn.calls[0].message == f"{1:016x}"
    assert json.loads(turn.messages or "")[1]["content"] == "Looking."


def test_more_than_ten_messages_keep_their_order():
    told = {f"llm.input_messages.{n}.message.{key}": value for n in range(12)
            for key, value in {"role": "user", "content": str(n)}.items()}  # fmt: skip
    (turn,) = turns(page(span(1, "LLM", told | {"llm.output_messages.0.message.content": "Hi"})))
    contents = [m["content"] for m in json.loads(turn.messages or "")]
    assert contents == [*map(str, range(12)), "Hi"]


def test_tools_that_were_offered_are_kept():
    schema = '{"type": "function", "function": {"name": "get_order", "parameters": {"type": "object"}}}'
    found = call(span(1, "LLM", LLM | {"llm.tools.0.tool.json_schema": schema}), span(2, "TOOL", TOOL))
    assert found.tools == f"[{schema}]"


def test_what_the_ai_sdk_tells_in_attributes_of_its_own_is_read():
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    offered = {"type": "function", "name": "get_order", "description": "One order", "inputSchema": schema}
    tools = VERCEL | {"ai.prompt.tools": [json.dumps(offered)]}
    given = {
        "llm.input_messages.2.message.role": "assistant",
        "llm.input_messages.2.message.contents.0.message_content.type": "tool-call",
        "llm.input_messages.2.message.contents.0.message_content.text": None,
        "llm.input_messages.2.message.tool_calls.0.tool_call.id": "call_1",
        "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "get_order",
        "llm.input_messages.3.message.role": "tool",
        "llm.input_messages.3.message.tool_call_id": "call_1",
        "llm.input_messages.3.message.content": '{"type":"json","value":{"status":"sent"}}',
        "output.value": "It is sent.",
        "output.mime_type": "text/plain",
    }
    last = {key: value for key, value in LLM.items() if not key.startswith("llm.output_messages")} | given | tools
    first = LLM | tools | {"output.value": "Looking.", "output.mime_type": "text/plain"}
    (turn,) = turns(page(span(1, "LLM", first), span(2, "TOOL", TOOL), span(3, "LLM", last)))
    told = json.loads(turn.messages or "")
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "assistant"]
    assert told[1]["content"] is None
    assert (told[2]["content"], told[3]["content"]) == ('{"status":"sent"}', "It is sent.")
    assert json.loads(turn.calls[0].tools or "") == [
        {"type": "function", "function": {"name": "get_order", "description": "One order", "parameters": schema}}
    ]
    (turn,) = turns(page(span(1, "LLM", first)))
    assert json.loads(turn.messages or "")[1]["content"] == "Looking."


@pytest.mark.parametrize(
    ("content", "bare"),
    [
        ('{"type":"error-text","value":"no such order"}', "no such order"),
        ('{"type":"parcel","value":1}', '{"type":"parcel","value":1}'),
        ('{"type":["json"],"value":1}', '{"type":["json"],"value":1}'),
        ('{"type":"json"', '{"type":"json"'),
    ],
)
def test_only_the_wrapper_of_the_ai_sdk_is_taken_off_results(content: str, bare: str):
    answer = {"role": "tool", "tool_call_id": "call_1", "content": content}
    asked = {
        key.replace("output", "input").replace("0", "2", 1): value for key, value in LLM.items() if "output" in key
    }
    last = LLM | VERCEL | asked | {f"llm.input_messages.3.message.{key}": value for key, value in answer.items()}
    (turn,) = turns(page(span(1, "LLM", LLM), span(2, "LLM", last)))
    assert json.loads(turn.messages or "")[2]["content"] == bare


def test_a_result_that_looks_like_the_wrapper_stays_with_all_others():
    answer = {"role": "tool", "tool_call_id": "call_1", "content": '{"type":"json","value":1}'}
    last = {f"llm.input_messages.2.message.{key}": value for key, value in answer.items()}
    (turn,) = turns(page(span(1, "LLM", LLM), span(2, "LLM", LLM | last)))
    assert turn.calls[0].result == answer["content"]


def test_a_name_with_thousands_of_steps_costs_nothing():
    deep = "llm.output_messages.0.message." + "a." * 50_000
    reply = otlp_span(1, {"openinference.span.kind": "LLM", **LLM, deep: "x"})
    (turn,) = turns(otlp(reply, otlp_span(2, {"openinference.span.kind": "TOOL", **TOOL})))
    assert turn.calls[0].message == f"{1:016x}"


def test_a_tools_span_of_langchain_holds_the_whole_message_and_the_bare_argument():
    message = {"content": '{"status": "sent"}', "type": "tool", "tool_call_id": "call_1", "status": "success"}
    output = json.dumps({"type": "tool", "data": message})
    for bare in ("number 7", "7"):
        ran = span(2, "TOOL", {"tool.name": "get_order", "input.value": bare, "output.value": output})
        found = call(span(1, "LLM", LLM), ran)
        assert (found.tool_call_id, found.args, found.result) == ("call_1", '{"n": "7"}', '{"status": "sent"}')
        assert found.warnings == ()
    message["status"] = "error"
    failed = span(2, "TOOL", {**TOOL, "output.value": json.dumps({"type": "tool", "data": message})})
    assert call(failed).is_error is True
