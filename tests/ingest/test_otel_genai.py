import json
from typing import Any

import pytest

from quality.ingest import carriers, conventions
from quality.ingest.records import CallRecord
from quality.ingest.span_records import records_of_trace
from quality.ingest.spans import Span
from tests.ingest.helpers import lines, outcomes, turns
from tests.ingest.span_files import TRACE, any_value, genai_chat, genai_tool, otlp, otlp_span, pairs


def call(*spans: dict[str, Any]) -> CallRecord:
    """The only call of a request."""
    (turn,) = turns(otlp(*spans))
    (found,) = turn.calls
    return found


@pytest.mark.parametrize(
    ("attributes", "args", "result"),
    [
        ({}, '{"n": "7"}', '{"status": "sent"}'),
        ({"gen_ai.tool.call.arguments": {"n": 7, "deep": [{"a": True}]}}, '{"n":7,"deep":[{"a":true}]}', None),
        ({"gen_ai.tool.call.result": {"status": "sent"}}, None, '{"status":"sent"}'),
        ({"gen_ai.tool.call.result": "17"}, None, '"17"'),
        ({"gen_ai.tool.call.result": [1, "a"]}, None, '[1,"a"]'),
    ],
)
def test_payloads_come_as_text_or_structured(attributes, args, result):
    found = call(genai_tool(1, attributes=attributes))
    assert args in (None, found.args)
    assert result in (None, found.result)


def test_content_that_was_not_captured_is_told_as_missing():
    found = call(genai_tool(1, attributes={"gen_ai.tool.call.arguments": None, "gen_ai.tool.call.result": None}))
    assert (found.args, found.result, found.is_error) == (None, None, False)
    assert found.warnings == ("args_missing", "no_result")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"status": {"code": 2, "message": "gone"}}, "gone"),
        ({"status": {"code": "STATUS_CODE_ERROR"}}, None),
        ({"attributes": {"error.type": "timeout"}}, "timeout"),
        ({"status": {"code": 2}, "events": [{"name": "exception", "attributes": [
            {"key": "exception.message", "value": {"stringValue": "no order 7"}}]}]}, "no order 7"),
    ],
)  # fmt: skip
def test_errors_are_the_status_or_the_type(more, error):
    attributes = {"gen_ai.tool.call.result": None, **more.pop("attributes", {})}
    found = call(genai_tool(1, attributes=attributes, **more))
    assert (found.is_error, found.error, found.warnings) == (True, error, ())


def test_names_are_read_in_their_older_forms():
    chat = genai_chat(1, "a", attributes={"gen_ai.provider.name": None, "gen_ai.system": "OpenAI"})
    tool = otlp_span(2, {"gen_ai.tool.call.id": "a"}, name="execute_tool get_order")
    found = call(chat, tool)
    assert (found.tool_name, found.provider, found.model) == ("get_order", "openai", "m")


def test_messages_may_be_structured_or_in_an_event():
    output = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "a", "name": "f", "arguments": {"n": 1}}]}]
    event = {
        "name": "gen_ai.client.inference.operation.details",
        "attributes": [{"key": "gen_ai.output.messages", "value": any_value(output)}],
    }
    structured = genai_chat(1, attributes={"gen_ai.output.messages": output})
    apart = genai_chat(1, attributes={"gen_ai.output.messages": None}, events=[event])
    assert call(structured).args == call(apart).args == '{"n":1}'


def test_what_the_conversation_is_called_and_who_is_in_it():
    agent = otlp_span(1, {"gen_ai.operation.name": "invoke_agent", "session.id": "s", "enduser.id": "u",
                          "gen_ai.agent.version": "v3"})  # fmt: skip
    tool = genai_tool(2, parentSpanId=agent["spanId"])
    found = call(agent, tool)
    assert (found.conversation, found.contact, found.prompt_version) == ("s", "u", "v3")
    named = otlp_span(3, {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "c"})
    assert call(agent, tool, named).conversation == "c"
    assert call(tool).conversation == TRACE


def test_tools_and_the_system_prompt_are_kept():
    definitions = [{"type": "function", "name": "get_order", "parameters": {"type": "object"}}]
    told = {
        "gen_ai.tool.definitions": json.dumps(definitions),
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be kind."}]),
    }
    (turn,) = turns(otlp(genai_chat(1, "call_1", attributes=told), genai_tool(2)))
    assert json.loads(turn.tools or "")[0]["function"]["name"] == "get_order"
    assert turn.calls[0].tools == turn.tools
    assert turn.system == '"Be kind."'
    assert [m["role"] for m in json.loads(turn.messages or "")] == ["user", "assistant", "tool"]


def test_other_choices_of_a_reply_were_not_used():
    output = [{"role": "assistant", "parts": [{"type": "tool_call", "id": i, "name": "f"}]} for i in ("a", "b")]
    assert call(genai_chat(1, attributes={"gen_ai.output.messages": json.dumps(output)})).tool_call_id == "a"


def test_ids_in_base64_are_the_same_spans():
    hexed = genai_tool(0x8BB198D9DB043128)
    based = {**hexed, "spanId": "i7GY2dsEMSg=", "traceId": "W47/95gDgQPSabYzgT/GDA=="}
    assert turns(otlp(based)) == turns(otlp(hexed))


def test_the_json_of_the_sdk_is_read_alike():
    def of_sdk(number: int, attributes: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
        return {
            "name": "span",
            "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{number:016x}", "trace_state": "[]"},
            "kind": "SpanKind.INTERNAL",
            "parent_id": parent,
            "start_time": f"2026-05-03T09:45:00.{number:03}000Z",
            "end_time": f"2026-05-03T09:45:00.{number + 1:03}000Z",
            "status": {"status_code": "UNSET"},
            "attributes": attributes,
            "events": [],
        }

    def flat(span: dict[str, Any]) -> dict[str, Any]:
        return {pair["key"]: pair["value"]["stringValue"] for pair in span["attributes"]}

    spans = [genai_chat(1, "call_1"), genai_tool(2)]
    sdk = [of_sdk(1, flat(spans[0])), of_sdk(2, flat(spans[1]), parent=f"0x{1:016x}")]
    assert turns(lines(*sdk)) == turns(sdk) == turns(otlp(*spans))
    printed = "\n".join(json.dumps(span, indent=4) for span in sdk).encode()
    assert turns(printed) == turns(sdk)


def test_spans_of_openinference_in_the_same_request_are_read_as_such():
    other = {"openinference.span.kind": "TOOL", "tool.name": "find", "tool.id": "b", "input.value": "{}"}
    (turn,) = turns(otlp(genai_tool(1), otlp_span(2, other)))
    assert {c.tool_name: c.source for c in turn.calls} == {"get_order": "otel_genai", "find": "openinference"}


def test_requests_with_spans_of_others_are_taken_and_tell_nothing():
    others = otlp(otlp_span(1, {"http.route": "/"}, trace="1" * 32))
    assert outcomes(lines(others, otlp(), others)) == []
    for ours in (genai_tool(1), otlp_span(1, {"openinference.span.kind": "TOOL"})):
        (turn,) = turns(lines(others, otlp(ours)))
        assert len(turn.calls) == 1


def test_spans_that_arrive_one_by_one_are_read_as_in_a_file():
    sent = [genai_chat(1, "call_1"), genai_tool(2)]
    found = [span for each in sent for span in conventions.spans([carriers.of_span(each)]) if isinstance(span, Span)]
    assert records_of_trace(found) == turns(otlp(*sent))


def test_payloads_in_events_weigh_like_those_in_attributes():
    """Else traces would be held far beyond their bound."""
    told = pairs({"gen_ai.output.messages": "[" + " " * 5_000 + "]"})
    events = [{"name": "gen_ai.client.inference.operation.details", "attributes": told}]
    (span,) = conventions.of_document(otlp(otlp_span(1, {"gen_ai.operation.name": "chat"}, events=events)))
    assert isinstance(span, Span)
    assert span.size > 5_000
