import base64
import json
from typing import Any

import pytest

from quality.ingest.records import CallRecord
from tests.ingest.helpers import lines, refusals, turns
from tests.ingest.span_files import MILLISECOND, START

MESSAGE = {"tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"n": 7}'}}]}
RESPONSE = {"id": "reply", "model": "m-2026", "choices": [{"index": 0, "message": {"role": "assistant", **MESSAGE}}]}


def span(number: int, kind: str, inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    told = {"mlflow.spanType": kind, "mlflow.spanInputs": inputs, "mlflow.spanOutputs": outputs}
    told |= more.pop("attributes", {})
    return {
        "trace_id": "ldah9G7OZae+MzppDb5FuA==",
        "span_id": base64.b64encode(number.to_bytes(8)).decode(),
        "parent_span_id": None,
        "name": "f",
        "start_time_unix_nano": START + number * MILLISECOND,
        "end_time_unix_nano": START + (number + 1) * MILLISECOND,
        "events": [],
        "status": {"code": "STATUS_CODE_OK", "message": ""},
        "attributes": {key: json.dumps(value) for key, value in told.items() if value is not None},
        **more,
    }


def model(number: int, **more: Any) -> dict[str, Any]:
    given = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": [{"name": "f"}]}
    return span(number, "CHAT_MODEL", given, RESPONSE, **more)


def trace(*spans: dict[str, Any], **info: Any) -> dict[str, Any]:
    return {"info": {"trace_id": "tr-1", "trace_metadata": {}, "tags": {}, **info}, "data": {"spans": list(spans)}}


def old(*spans: dict[str, Any], **info: Any) -> dict[str, Any]:
    """The same in schema version 2."""
    told = []
    for each in spans:
        number = int.from_bytes(base64.b64decode(each["span_id"]))
        told.append(
            {
                "name": each["name"],
                "context": {"span_id": f"0x{number:016x}", "trace_id": "0x1"},
                "parent_id": None,
                "start_time": each["start_time_unix_nano"],
                "end_time": each["end_time_unix_nano"],
                "status_code": each["status"]["code"].removeprefix("STATUS_CODE_"),
                "status_message": each["status"]["message"],
                "attributes": each["attributes"],
                "events": each["events"],
            }
        )
    return {"info": {"request_id": "tr-1", "request_metadata": {}, "tags": [], **info}, "data": {"spans": told}}


def call(document: dict[str, Any]) -> CallRecord:
    (turn,) = turns(document)
    (found,) = turn.calls
    return found


def test_both_versions_tell_the_same_call():
    spans = [model(1), span(2, "TOOL", {"n": 7}, {"status": "sent"}, attributes={"mlflow.spanFunctionName": "f"})]
    new = call(trace(*spans))
    assert call(old(*spans)) == new
    assert (new.external_id, new.message, new.model) == ("tr-1:0000000000000002", "reply", "m-2026")
    assert (new.args, new.result, new.tool_call_id) == ('{"n": 7}', '{"status": "sent"}', "call_1")


@pytest.mark.parametrize("make", [trace, old])
def test_who_speaks_and_in_which_version(make):
    metadata = {"mlflow.trace.session": "c", "mlflow.trace.user": "u"}
    key = "trace_metadata" if make is trace else "request_metadata"
    tags = {"prompt_version": "v"} if make is trace else [{"key": "prompt_version", "value": "v"}]
    found = call(make(span(1, "TOOL", {}, "x"), **{key: metadata, "tags": tags}))
    assert (found.conversation, found.contact, found.prompt_version) == ("c", "u", "v")
    assert call(make(span(1, "TOOL", {}, "x"))).conversation == "tr-1"


@pytest.mark.parametrize(
    ("name", "function", "told", "warnings"),
    [
        ("search_2", None, "search", ("name_suffix_removed", "no_call_id")),
        ("search_2", "search_2", "search_2", ("no_call_id",)),
        ("search", None, "search", ("no_call_id",)),
    ],
)
def test_a_suffix_of_repeated_names_goes_only_in_the_old_version(name, function, told, warnings):
    tool = span(1, "TOOL", {}, "x", name=name, attributes={"mlflow.spanFunctionName": function})
    found = call(old(tool))
    assert (found.tool_name, found.warnings) == (told, warnings)
    assert call(trace(tool)).tool_name == name


def test_attributes_encoded_twice_or_not_at_all_are_read():
    once = span(1, "TOOL", {"n": 7}, {"a": 1})
    twice = {**once, "attributes": {key: json.dumps(value) for key, value in once["attributes"].items()}}
    never = {**once, "attributes": {key: json.loads(value) for key, value in once["attributes"].items()}}
    assert call(trace(once)) == call(trace(twice)) == call(trace(never))


@pytest.mark.parametrize("code", ["STATUS_CODE_ERROR", "ERROR", 2])
def test_the_exception_tells_more_than_the_status(code):
    failed = {"status": {"code": code, "message": "ValueError: gone"}}
    found = call(trace(span(1, "TOOL", {}, None, **failed)))
    assert (found.is_error, found.error, found.result) == (True, "ValueError: gone", None)
    events = [{"name": "exception", "attributes": {"exception.message": "gone"}}]
    assert call(trace(span(1, "TOOL", {}, None, **failed, events=events))).error == "gone"


def test_a_tool_message_tells_the_id_and_whether_it_failed():
    answer = {"type": "tool", "tool_call_id": "call_9", "content": "gone", "status": "error"}
    found = call(trace(span(1, "TOOL", {}, answer)))
    assert (found.tool_call_id, found.result, found.is_error, found.error) == ("call_9", '"gone"', True, "gone")


def test_messages_and_tools_of_the_model_are_kept():
    (turn,) = turns(trace(model(1), span(2, "TOOL", {"n": 7}, "sent")))
    assert [m["role"] for m in json.loads(turn.messages or "")] == ["user", "assistant", "tool"]
    assert json.loads(turn.tools or "") == [{"type": "function", "function": {"name": "f"}}]
    offered = model(1, attributes={"mlflow.chat.tools": [{"type": "function", "function": {"name": "g"}}]})
    assert "g" in (turns(trace(offered))[0].tools or "")


def test_each_trace_comes_out_with_its_line():
    data = lines(*(trace(span(1, "TOOL", {}, "x"), trace_id=f"tr-{n}") for n in range(3)))
    assert [turn.conversation for turn in turns(data)] == ["tr-0", "tr-1", "tr-2"]


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        ({"info": {}, "data": {"spans": []}}, "info.trace_id"),
        ({"info": {"trace_id": "t"}, "data": {}}, "data.spans"),
        (trace(span(1, "TOOL", {}, "x"), 7), "data.spans[1]"),
        (trace({**span(1, "TOOL", {}, "x"), "span_id": None}), "data.spans[0].span_id"),
        (trace(span(1, "TOOL", {}, "x", name="")), "data.spans[0].name"),
    ],
)
def test_a_broken_trace_is_named_by_field(broken, path):
    (refused,) = refusals(lines(trace(), broken), "mlflow")
    assert (refused.line, refused.path) == (2, path)
