import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.ingest.formats import neutral
from quality.ingest.jsontext import parse
from quality.ingest.records import RecordError, to_neutral
from tests.ingest.helpers import NEUTRAL, lines, refusals, turns

FULL = {
    "tenant": None,
    "conversation": "c-1",
    "contact": "u-1",
    "message": "m-1",
    "cycle": 2,
    "index": 1,
    "tool_call_id": "call_1",
    "tool_name": "get_order",
    "args": {"n": 7},
    "result": {"status": "sent"},
    "is_error": False,
    "error": None,
    "started_at": "2026-05-12T08:30:00.123Z",
    "duration_ms": 12,
    "model": "m",
    "provider": "p",
    "source": "my-agent",
    "prompt_version": "v1",
    "warnings": ["provider_executed"],
}


def one(**fields):
    (turn,) = turns(lines({**NEUTRAL, **fields}))
    (call,) = turn.calls
    return turn, call


def test_a_full_record_comes_back_as_it_went_in():
    (turn,) = turns(lines(FULL))
    assert to_neutral(turn.calls[0]) == FULL
    assert (turn.source, turn.conversation, turn.num_cycles) == ("my-agent", "c-1", 3)


def test_the_smallest_record_is_a_tool_name():
    _, call = one(external_id=None, args=None, result=None)
    assert call.warnings == ("args_missing", "no_result")
    assert (call.source, call.cycle, call.index, call.is_error) == ("neutral", 0, 0, None)


def test_evidence_is_kept_as_spelled():
    raw = b'{"tool_name":"t","args": {"b":1.10,"a":1E5},"result":"\\ud800"}'
    (turn,) = turns(raw)
    assert (turn.calls[0].args, turn.calls[0].result) == ('{"b":1.10,"a":1E5}', '"\\ud800"')


@pytest.mark.parametrize(
    ("sent", "is_error", "error"),
    [
        ({"result": {"error": "gone"}}, True, "gone"),
        ({"result": {"error": "gone"}, "is_error": False}, False, None),
        ({"result": "x", "is_error": True}, True, None),
        ({"result": None, "error": "timed out"}, True, "timed out"),
        ({"result": None, "error": {"message": "timed out"}}, True, "timed out"),
        ({"result": None}, None, None),
        ({"result": [1]}, False, None),
    ],
)
def test_an_error_is_the_flag_or_what_the_result_says(sent, is_error, error):
    _, call = one(**sent)
    assert (call.is_error, call.error) == (is_error, error)


def test_calls_of_one_message_are_one_turn_and_a_named_turn_joins_more():
    first, second = turns(
        lines({**NEUTRAL, "external_id": "a", "conversation": "c", "message": "m"},
              {**NEUTRAL, "external_id": "b", "conversation": "c", "message": "m", "index": 1})
    )  # fmt: skip
    assert first.external_id == second.external_id
    assert {one(turn="t-1", external_id=name)[0].external_id for name in ("a", "b")} == {"t-1"}
    assert one(external_id="a")[0].external_id != one(external_id="b")[0].external_id


def test_without_an_external_id_the_same_record_is_the_same_call():
    _, first = one(external_id=None)
    _, again = one(external_id=None)
    _, other = one(external_id=None, args={"n": "8"})
    assert first.external_id == again.external_id != other.external_id


def test_times_become_utc_with_milliseconds_cut():
    assert one(started_at="2026-05-12T10:30:00.9999+02:00")[1].started_at == "2026-05-12T08:30:00.999Z"


def test_the_turns_own_fields_are_taken():
    messages = [{"role": "user", "content": "?"}]
    turn, call = one(
        messages=messages, system="Be kind.", tools=[{"type": "function"}], style_id="s", outbound_message="o"
    )
    assert json.loads(turn.messages) == messages
    assert (json.loads(turn.system), turn.style_id, turn.outbound_message) == ("Be kind.", "s", "o")
    assert turn.tools == call.tools == '[{"type": "function"}]'


def test_fields_we_do_not_know_are_told_as_a_warning():
    assert "unknown_field" in one(argz={})[1].warnings


def test_the_tenant_never_comes_from_the_file():
    _, call = one(tenant="somebody else")
    assert call.warnings == ()


def test_names_hold_nothing_that_a_database_cannot():
    assert one(conversation="a\0b\ud800", message="m")[1].conversation == "a\ufffdb\ufffd"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("tool_name", None, "missing_field"),
        ("tool_name", "", "missing_field"),
        ("tool_name", ["t"], "wrong_type"),
        ("tool_name", "t" * 501, "too_long"),
        ("external_id", "", "invalid_identifier"),
        ("external_id", "-a", "invalid_identifier"),
        ("external_id", "a\n", "invalid_identifier"),
        ("external_id", "a" * 201, "invalid_identifier"),
        ("external_id", "é", "invalid_identifier"),
        ("external_id", 7, "invalid_identifier"),
        ("turn", "a b", "invalid_identifier"),
        ("source", "engine", "invalid_identifier"),
        ("cycle", -1, "out_of_range"),
        ("cycle", 1.5, "out_of_range"),
        ("index", True, "out_of_range"),
        ("index", 32_768, "out_of_range"),
        ("duration_ms", 2**31, "out_of_range"),
        ("started_at", "yesterday", "invalid_time"),
        ("started_at", "2026-05-12T08:30:00", "invalid_time"),
        ("started_at", "0001-01-01T00:00:00+14:00", "invalid_time"),
        ("started_at", 1, "invalid_time"),
        ("is_error", "yes", "wrong_type"),
        ("warnings", "no_result", "wrong_type"),
        ("messages", {}, "wrong_type"),
        ("messages", ["?"], "wrong_type"),
        ("tools", [{}] * 1_001, "too_long"),
        ("system", [], "wrong_type"),
    ],
)
def test_a_bad_field_is_refused_by_name(field, value, code):
    (refused,) = refusals(lines(NEUTRAL, {**NEUTRAL, field: value}), "neutral")
    assert (refused.line, refused.path, refused.code) == (2, field, code)


@pytest.mark.parametrize("good", ["a" * 200, "A0._:/-z", "0"])
def test_identifiers_up_to_200_characters_are_taken(good):
    assert one(external_id=good)[1].external_id == good


def test_what_is_no_object_is_no_record():
    assert [item.code for item in refusals(b'[{"tool_name":"t"}, 1, "x", [], null]')] == ["not_an_object"] * 4


def test_a_file_of_unknown_kind_is_told_what_can_be_read():
    (refused,) = refusals(b'{"spans": []}')
    assert refused.code == "unknown_format"
    assert "Neutral record" in refused.message


FIELDS = [*FULL, "external_id", "turn", "messages", "system", "tools", "style_id", "outbound_message", "more"]
VALUES = st.sampled_from(
    [
        *(
            None,
            "",
            "a",
            "a b",
            "x" * 200,
            "x" * 201,
            "x" * 501,
            "\u00e9",
            "\0",
            "\ud800",
            "\\u0000",
            "line\nbreak",
            "engine",
        ),
        *(0, 7, -1, 1.0, 12.5, 32_767, 32_768, 10**40, True, False),
        *(
            "2026-05-12T08:30:00.000Z",
            "2026-05-12T10:30:00+02:00",
            "2026-05-12",
            {},
            {"error": "gone"},
            [],
            [{}],
            ["a"],
        ),
    ]
)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6), st.booleans())
def test_fields_that_are_read_at_once_are_those_read_one_by_one(fields, is_good):
    root = parse(json.dumps({"tool_name": "t", **fields} if is_good else fields).encode())

    def read(told):
        try:
            return neutral._turn(root, told(root))
        except RecordError:
            return "refused"

    if neutral._told_at_once(root) is not None:
        assert read(neutral._told_at_once) == read(neutral._told_by_field)


def test_what_most_records_have_is_read_at_once():
    assert neutral._told_at_once(parse(json.dumps(FULL).encode())) is not None
    assert (
        neutral._told_at_once(parse(json.dumps({**FULL, "conversation": "Straße", "result": "\n"}).encode()))
        is not None
    )
