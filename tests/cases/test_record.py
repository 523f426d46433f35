"""Exports of cases: read back whole, or told where they are not."""

import argparse
import hashlib
import json
from typing import Any

import jsonschema
import pytest

from quality.cases.published import CASE_SCHEMA, END_SCHEMA, FEEDBACK_SCHEMA
from quality.cases.record import CaseFile, read_cases, read_stored
from quality.cases.selection import select
from tests.cases.samples import calls, tool

TOOLS = [tool("get_order", ("order_number",), order_number={"type": "string"})]
TIME = "2026-11-30T10:00:00.000000Z"


def record(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "recordType": "tool_call_regression_case",
        "schemaVersion": 1,
        "id": f"REG-{number}",
        "version": 1,
        "status": "active",
        "toolName": "get_order",
        "label": "bad_args",
        "input": {
            "args": {"order_number": "7713"},
            "messages": [{"role": "user", "content": "Where is order 7731?"}],
            "tools": TOOLS,
            "now": TIME,
        },
        "observed": {"result": {"status": "unknown"}, "isError": False, "error": None, "cycle": 0, "index": 0},
        "expected": {
            "behavior": "Look up the order that the user names.",
            "expectation": calls("first", {"tool": "get_order", "args": {"order_number": "7731"}}),
        },
        "context": {"conversationId": "c1", "model": "m", "proposalId": 3, "reviewer": {"id": 1, "name": "Reviewer"}},
        "stubs": [{"tool": "get_order", "args": {"order_number": {"regex": "7.*"}}, "result": {"status": "sent"}}],
        "createdAt": TIME,
        "updatedAt": TIME,
        **changes,
    }


def export(*records: Any, **end: Any) -> list[bytes]:
    lines = [json.dumps(each).encode() + b"\n" for each in records]
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    trailer = {"recordType": "_end", "count": len(lines), "sha256": digest, "nextCursor": None, **end}
    return [*lines, json.dumps(trailer).encode() + b"\n"]


def told(found: CaseFile) -> list[tuple[int, str, str]]:
    return [(fault.line, fault.path, fault.code) for fault in found.faults]


def test_cases_are_read_back() -> None:
    found = read_cases(export(record(1), record(2, status="archived"), nextCursor="abc"), require_trailer=True)
    assert (found.faults, found.warnings, found.complete, found.next_cursor) == ([], [], True, "abc")
    first, second = found.cases
    assert (first.id, first.line, first.tool, first.label, second.status) == (
        "REG-1",
        1,
        "get_order",
        "bad_args",
        "archived",
    )
    assert first.call is not None
    assert first.call.arguments == {"order_number": "7713"}
    assert first.toolset.names == ("get_order",)
    assert first.stubs[0]["result"] == {"status": "sent"}
    assert first.record["id"] == "REG-1"


def test_a_stored_record_is_read_as_its_line_is() -> None:
    line = export(record(7))[0]
    [case] = read_cases([line]).cases
    assert read_stored(line.decode(), 1) == case
    for text in ("{}", "[]", "null", '"x"', "{", line.decode().replace('"first"', '"last"'), "[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            read_stored(text, 1)


def test_what_is_exported_is_valid_by_the_published_schemas() -> None:
    jsonschema.Draft202012Validator(CASE_SCHEMA).validate(record())
    jsonschema.Draft202012Validator(END_SCHEMA).validate(json.loads(export()[-1]))
    wrong = record(expected={"behavior": "x", "expectation": {"version": 1, "calls": {"mode": "exactly"}}})
    assert not jsonschema.Draft202012Validator(CASE_SCHEMA).is_valid(wrong)
    wrong = record(stubs=[{"tool": "a", "args": {"x": {"eqal": 1}}, "result": 1}])
    assert not jsonschema.Draft202012Validator(CASE_SCHEMA).is_valid(wrong)


def test_a_case_without_a_call() -> None:
    given = record(
        toolName=None,
        label="missing_tool",
        observed=None,
        stubs=None,
        input={"args": None},
        expected={"behavior": "Call a tool.", "expectation": calls("any")},
    )
    found = read_cases(export(given))
    assert found.faults == []
    assert found.cases[0].call is None


def test_a_cut_file_fails_or_warns() -> None:
    lines = export(record(1), record(2))
    cut = read_cases(lines[:-1])
    assert (len(cut.cases), told(cut), [each.code for each in cut.warnings]) == (2, [], ["no_end"])
    assert told(read_cases(lines[:-1], require_trailer=True)) == [(2, "", "no_end")]
    assert told(read_cases([lines[0], lines[-1]])) == [(2, "", "wrong_count")]
    assert told(read_cases([lines[0], lines[0], lines[-1]])) == [(3, "", "wrong_checksum")]
    assert told(read_cases([*lines, lines[0]])) == [(4, "", "after_end")]
    assert told(read_cases([], require_trailer=True)) == [(0, "", "no_end")]
    assert told(read_cases(export(record(), sha256="x"))) == [(2, "/sha256", "bad_end")]
    half = read_cases([lines[0], lines[1][:50]])
    assert (len(half.cases), told(half)) == (1, [(2, "", "not_json")])


@pytest.mark.parametrize(
    ("changes", "path", "code"),
    [
        ({"recordType": "tool_call"}, "/recordType", "wrong_record"),
        ({"schemaVersion": 2}, "/schemaVersion", "schema"),
        ({"id": "12"}, "/id", "schema"),
        ({"label": "bad"}, "/label", "schema"),
        ({"status": "new"}, "/status", "schema"),
        ({"toolName": None}, "/toolName", "no_tool"),
        ({"toolName": 5}, "/toolName", "schema"),
        ({"input": {"args": [1]}}, "/input/args", "bad_args"),
        ({"input": {}}, "/input", "schema"),
        ({"observed": {"isError": "no"}}, "/observed/isError", "schema"),
        ({"observed": {"isError": True}}, "/observed/error", "no_error"),
        ({"expected": {"behavior": "", "expectation": {"version": 1}}}, "/expected/behavior", "schema"),
        ({"expected": {"behavior": "x"}}, "/expected", "schema"),
        (
            {"expected": {"behavior": "x", "expectation": calls("exactly", "a")}},
            "/expected/expectation/calls/mode",
            "unknown_mode",
        ),
        (
            {"expected": {"behavior": "x", "expectation": calls("first", "get_ordr")}},
            "/expected/expectation/calls/steps/0/tool",
            "unknown_tool",
        ),
        ({"createdAt": "yesterday"}, "/createdAt", "schema"),
    ],
)
def test_a_fault_names_line_case_tool_path_and_reason(changes: dict[str, Any], path: str, code: str) -> None:
    found = read_cases(export(record(1), record(2, **changes), record(3)))
    assert (2, path, code) in told(found)
    assert [case.id for case in found.cases] == ["REG-1", "REG-3"]
    fault = next(fault for fault in found.faults if fault.code == code)
    assert str(fault).startswith("line 2")
    assert fault.case in str(fault) if fault.case else True


@pytest.mark.parametrize("line", [b"\xff\n", b"[]\n", b"5\n", b'{"a": NaN}\n', b"[" * 5_000 + b"\n", b'"x"\n'])
def test_hostile_lines_are_told_and_passed_over(line: bytes) -> None:
    lines = export(record(1))
    found = read_cases([line, lines[0]])
    assert len(found.cases) == 1
    assert found.faults[0].line == 1


def test_numbers_and_deep_evidence_are_kept() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    line = json.dumps(record(input={"args": {"deep": deep}})).replace('"deep"', '"n": 1.10000000000000000001, "deep"')
    found = read_cases([line.encode() + b"\n"])
    assert found.faults == []
    assert str(found.cases[0].args["n"]) == "1.10000000000000000001"


def test_feedback_is_described_as_it_is_exported() -> None:
    feedback = {
        "recordType": "tool_call_feedback",
        "schemaVersion": 1,
        "id": 5,
        "label": "missing_tool",
        "note": "",
        "correction": {"tool": "get_order", "offered": True, "arguments": {}, "position": {"cycle": 0, "index": 1}},
        "reviewer": {"id": 1, "name": "Reviewer", "email": "r@example.org"},
        "call": None,
        "context": {"turnId": 7, "cycle": 0, "toolsetSha256": None},
        "version": 1,
        "createdAt": TIME,
        "updatedAt": TIME,
    }
    jsonschema.Draft202012Validator(FEEDBACK_SCHEMA).validate(feedback)


def test_cases_whose_values_were_masked_are_told():
    record_with_mark = record(2)
    record_with_mark["expected"]["behavior"] = "Writes to {masked:mail:1a2b3c4d}."
    options = argparse.Namespace(tools=None, case=[], tag=[], include_archived=False, skip_unsupported=False)
    selected = select(read_cases(export(record(1), record_with_mark)), options)
    assert len(selected.cases) == 2
    (notice,) = selected.notices
    assert notice.endswith("judged: REG-2.")
