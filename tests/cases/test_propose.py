"""What a label and a correction make of a call, and that the case does what it is for."""

import json
from typing import Any

import pytest

from quality.cases.judge import judge_case
from quality.cases.propose import Proposal, expectation_for
from quality.cases.sample import Call, Verdict
from quality.cases.schema import check
from tests.cases.samples import tool

TEXT = {"type": "string"}
REFUND = tool(
    "refund_order", ("order_number",), order_number=TEXT, amount={"type": "number"}, reason=TEXT, idempotency_key=TEXT
)
TOOLS = [REFUND, tool("create_ticket", title=TEXT, ticket_id=TEXT), tool("get_order", order_number=TEXT)]
MADE = {"order_number": "7713", "amount": 12.5, "reason": "It came broken.", "idempotency_key": "k-1"}
RIGHT = {**MADE, "order_number": "7731"}


def made(name: str = "refund_order", arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": json.dumps(arguments or MADE), "tools": TOOLS, **more}


def step_of(proposal: Proposal) -> dict[str, Any]:
    assert proposal.expectation is not None
    step: dict[str, Any] = proposal.expectation["calls"]["steps"][0]
    return step


def args_of(arguments: dict[str, Any], name: str = "refund_order", **more: Any) -> dict[str, Any]:
    args: dict[str, Any] = step_of(expectation_for("good_reply", None, made(name, arguments, **more)))["args"]
    return args


def test_a_correction_becomes_the_first_call() -> None:
    proposal = expectation_for("bad_args", {"arguments": RIGHT}, made())
    assert proposal.expectation == {
        "version": 1,
        "calls": {
            "mode": "first",
            "steps": [
                {
                    "tool": "refund_order",
                    "args": {
                        "order_number": {"equal": "7731"},
                        "amount": {"equal": 12.5},
                        "reason": {"ignore": True},
                        "idempotency_key": {"ignore": True},
                    },
                }
            ],
        },
    }
    assert [note.path for note in proposal.notes] == [
        "/calls/steps/0/args/reason",
        "/calls/steps/0/args/idempotency_key",
    ]
    assert all(note.why for note in proposal.notes)


def test_another_tool_takes_any_arguments_where_none_are_said() -> None:
    proposal = expectation_for("wrong_tool", {"tool": "create_ticket"}, made())
    assert step_of(proposal) == {"tool": "create_ticket", "extra_args": "allow"}


def test_a_tool_that_was_not_offered_is_pointed_out() -> None:
    proposal = expectation_for("wrong_tool", {"tool": "escalate", "offered": False}, made())
    assert proposal.notes[0].path == "/calls/steps/0/tool"
    assert "not offered" in proposal.notes[0].why


@pytest.mark.parametrize("label", ["wrong_tool", "bad_args"])
def test_without_a_correction_the_call_is_forbidden(label: str) -> None:
    proposal = expectation_for(label, None, made())
    assert proposal.expectation == {
        "version": 1,
        "calls": {"mode": "first"},
        "forbid": [{"tool": "refund_order", "args": {"order_number": {"equal": "7713"}, "amount": {"equal": 12.5}}}],
    }


def test_a_call_without_arguments_is_forbidden_by_its_name() -> None:
    proposal = expectation_for("wrong_tool", {}, {"name": "get_order", "arguments": "{}", "tools": TOOLS})
    assert proposal.expectation is not None
    assert proposal.expectation["forbid"] == [{"tool": "get_order"}]


def test_arguments_that_cannot_be_read_ask_for_a_call_that_can_run() -> None:
    proposal = expectation_for("bad_args", None, {"name": "refund_order", "arguments": '{"order', "tools": TOOLS})
    assert step_of(proposal) == {"tool": "refund_order", "extra_args": "allow"}


def test_a_missing_tool_is_any_call_or_that_of_the_tool() -> None:
    assert expectation_for("missing_tool", None, None).expectation == {"version": 1, "calls": {"mode": "any"}}
    proposal = expectation_for(
        "missing_tool", {"tool": "get_order", "arguments": {"order_number": "7731"}}, {"tools": TOOLS}
    )
    assert proposal.expectation == {
        "version": 1,
        "calls": {"mode": "contains", "steps": [{"tool": "get_order", "args": {"order_number": {"equal": "7731"}}}]},
    }


def test_good_replies_are_kept_as_they_were() -> None:
    assert step_of(expectation_for("good_reply", None, made()))["args"]["order_number"] == {"equal": "7713"}
    assert expectation_for("good_reply", None, None).expectation == {"version": 1, "calls": {"mode": "none"}}


def test_other_makes_no_case_by_itself() -> None:
    assert expectation_for("other", {"tool": "x"}, made()).expectation is None


def test_calls_of_the_same_reply_are_part_of_the_first_one() -> None:
    proposal = expectation_for("bad_args", {"arguments": RIGHT}, made(beside=[{"name": "get_order"}]))
    assert proposal.expectation is not None
    assert proposal.expectation["calls"]["steps"][1] == {"tool": "get_order", "extra_args": "allow"}


UUID = "0b5f1c52-3f4e-4f6e-9d58-1c2d3e4f5a6b"


@pytest.mark.parametrize(
    ("tool_name", "name", "value", "volatile"),
    [
        ("create_ticket", "ticket_id", "T-1", True),
        ("create_ticket", "id", "T-1", True),
        ("createTicket", "ticketId", "T-1", True),
        ("create_ticket", "customer_id", "C-1", False),
        ("refund_order", "order_id", "7731", False),
        ("refund_order", "idempotency_key", "x", True),
        ("refund_order", "idempotencyKey", "x", True),
        ("refund_order", "request_id", "x", True),
        ("refund_order", "nonce", "x", True),
        ("refund_order", "timestamp", 1_764_500_000, True),
        ("refund_order", "created_at", "2026-11-30T10:00:00Z", True),
        ("refund_order", "created_at", "Rome", False),
        ("book", "start", "2026-12-01T10:00:00Z", False),
        ("book", "start", "2026-11-30T10:03:00Z", True),
        ("refund_order", "ref", UUID, True),
        ("refund_order", "valid", True, False),
        ("refund_order", "count", 5, False),
    ],
)
def test_what_is_another_value_each_time_is_ignored(tool_name: str, name: str, value: Any, volatile: bool) -> None:
    args = args_of({name: value, "z": 1}, tool_name, now="2026-11-30T10:00:00Z")
    assert args[name] == ({"ignore": True} if volatile else {"equal": value})


def test_what_the_conversation_says_is_no_invention() -> None:
    assert args_of({"ref": UUID}, messages=[{"role": "user", "content": f"About {UUID}"}])["ref"] == {"equal": UUID}
    assert args_of({"ref": UUID}, messages=[{"role": "user", "content": "Hello"}])["ref"] == {"ignore": True}


def test_what_the_reviewer_set_is_kept() -> None:
    arguments = {**RIGHT, "idempotency_key": "k-2", "reason": "It came broken and late."}
    args = step_of(expectation_for("bad_args", {"arguments": arguments}, made()))["args"]
    assert args["idempotency_key"] == {"equal": "k-2"}
    assert args["reason"]["text"]["of"] == "It came broken and late."


def test_free_text_goes_to_a_model_where_there_is_one() -> None:
    proposal = expectation_for("bad_args", {"arguments": RIGHT}, made(), can_judge=True)
    assert step_of(proposal)["args"]["reason"]["judge"]["of"] == "It came broken."


def test_objects_are_taken_apart_only_for_what_is_volatile_inside() -> None:
    assert args_of({"to": {"city": "Rome"}})["to"] == {"equal": {"city": "Rome"}}
    assert args_of({"meta": {"city": "Rome", "trace_id": "t"}})["meta"] == {
        "object": {"fields": {"city": {"equal": "Rome"}, "trace_id": {"ignore": True}}}
    }


def test_odd_names_and_numbers_stay_themselves() -> None:
    arguments = '{"/path": "a", "": 1, "n": 0.12345678901234567890123, "big": 123456789012345678901234567890}'
    call = {"name": "f", "arguments": arguments, "tools": None}
    proposal = expectation_for("good_reply", None, call)
    assert check(proposal.expectation) == []
    assert judge_case(proposal.expectation, label="good_reply", call=Call("f", arguments)).recorded.passed


CORRECTIONS: list[tuple[str, dict[str, Any] | None]] = [
    ("bad_args", {"arguments": RIGHT}),
    ("bad_args", None),
    ("wrong_tool", {"tool": "get_order", "arguments": {"order_number": "7713"}}),
    ("wrong_tool", {"tool": "get_order"}),
    ("wrong_tool", None),
]


@pytest.mark.parametrize(("label", "correction"), CORRECTIONS)
@pytest.mark.parametrize("can_judge", [False, True])
def test_a_bad_call_fails_its_own_case_and_the_corrected_one_passes(
    label: str, correction: dict[str, Any] | None, can_judge: bool
) -> None:
    proposal = expectation_for(label, correction, made(), can_judge=can_judge)
    assert check(proposal.expectation, TOOLS) == []
    call = Call("refund_order", json.dumps(MADE))
    found = judge_case(proposal.expectation, label=label, call=call, correction=correction, tools=TOOLS)
    assert found.recorded.verdict is Verdict.FAIL
    assert found.warnings == ()
    if correction and "arguments" in correction:
        assert found.corrected is not None
        assert found.corrected.passed or (can_judge and found.corrected.verdict is Verdict.ERROR)


def test_a_case_that_would_catch_nothing_is_warned_of() -> None:
    call = Call("refund_order", json.dumps(MADE))
    loose = {"version": 1, "calls": {"mode": "any"}}
    assert "would catch nothing" in judge_case(loose, label="bad_args", call=call).warnings[0]
    strict = {"version": 1, "calls": {"mode": "none"}}
    found = judge_case(strict, label="bad_args", call=call, correction={"arguments": RIGHT})
    assert found.warnings == ("The corrected call fails this expectation: no model could pass the case.",)
    assert "labelled good" in judge_case(strict, label="good_reply", call=call).warnings[0]
    assert "cannot be judged" in judge_case({}, label="good_reply", call=call).warnings[0]


def test_a_missing_call_is_a_reply_without_one() -> None:
    found = judge_case({"version": 1, "calls": {"mode": "any"}}, label="missing_tool", call=None)
    assert (found.recorded.verdict, found.warnings) == (Verdict.FAIL, ())


@pytest.mark.parametrize(
    "correction", [[], "x", {"tool": 5}, {"arguments": [1]}, {"arguments": {"a": float("nan")}}, {"position": 3}]
)
def test_a_correction_of_the_wrong_shape_says_nothing(correction: Any) -> None:
    proposal = expectation_for("bad_args", correction, made())
    assert proposal.expectation is not None
    assert "forbid" in proposal.expectation
