import base64
import json

import pytest

from quality.ingest import otlp_values
from quality.ingest.records import RecordError

TRACE = "5b8efff798038103d269b633813fc60c"


def value(any_value):
    return otlp_values.any_value(any_value, "value")


@pytest.mark.parametrize(
    ("any_value", "plain"),
    [
        ({"stringValue": "17"}, "17"),
        ({"stringValue": ""}, ""),
        ({"boolValue": False}, False),
        ({"intValue": "9223372036854775807"}, 2**63 - 1),
        ({"intValue": 7}, 7),
        ({"doubleValue": 1.5}, 1.5),
        ({"doubleValue": 2}, 2.0),
        ({"doubleValue": "NaN"}, "NaN"),
        ({"bytesValue": "AAE="}, "AAE="),
        ({"arrayValue": {"values": [{"intValue": "1"}, {}]}}, [1, None]),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "n", "value": {"stringValue": "7"}}]}}, {"n": "7"}),
        ({"kvlistValue": {}}, {}),
        ({"string_value": "snake"}, "snake"),
        ({"newValue": "?"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_each_kind_of_value_becomes_plain(any_value, plain):
    assert value(any_value) == plain
    assert json.dumps(value(any_value), allow_nan=False)


@pytest.mark.parametrize("broken", [{"intValue": "seven"}, {"intValue": True}, {"doubleValue": []}, {"boolValue": {}}])
def test_a_value_of_the_wrong_kind_is_none(broken):
    assert value(broken) is None


@pytest.mark.parametrize(
    ("any_value", "code", "path"),
    [
        ("text", "wrong_type", "value"),
        ({"arrayValue": {"values": 1}}, "wrong_type", "value.arrayValue.values"),
        ({"arrayValue": {"values": ["x"]}}, "wrong_type", "value.arrayValue.values[0]"),
        ({"kvlistValue": {"values": [{"key": 1}]}}, "wrong_type", "value.kvlistValue.values[0]"),
    ],
)
def test_what_is_no_value_is_refused_by_field(any_value, code, path):
    with pytest.raises(RecordError) as refused:
        value(any_value)
    assert (refused.value.code, refused.value.path) == (code, path)


def test_depth_and_count_are_bounded():
    deep = {"stringValue": "x"}
    for _ in range(otlp_values.MAX_DEPTH):
        deep = {"arrayValue": {"values": [deep]}}
    with pytest.raises(RecordError, match="nested"):
        value(deep)
    assert value(deep["arrayValue"]["values"][0]) is not None
    many = [{"key": str(n), "value": {"intValue": n}} for n in range(otlp_values.MAX_VALUES + 1)]
    with pytest.raises(RecordError, match="50,000 values"):
        otlp_values.attributes(many, "attributes")
    assert len(otlp_values.attributes(many[1:], "attributes")) == otlp_values.MAX_VALUES


@pytest.mark.parametrize(
    "told",
    [TRACE, TRACE.upper(), f"0x{TRACE}", base64.b64encode(bytes.fromhex(TRACE)).decode(), bytes.fromhex(TRACE)],
)
def test_an_id_is_the_same_in_any_spelling(told):
    assert otlp_values.identifier(told, otlp_values.TRACE_ID_BYTES) == TRACE


@pytest.mark.parametrize("told", [None, 7, "", "xyz", "0" * 32, TRACE[:-1], TRACE + "0", "=" * 24, "é" * 32, b"short"])
def test_what_is_no_id_is_none(told):
    assert otlp_values.identifier(told, otlp_values.TRACE_ID_BYTES) is None


def test_a_span_id_may_be_base64_too():
    assert otlp_values.identifier("i7GY2dsEMSg=", otlp_values.SPAN_ID_BYTES) == "8bb198d9db043128"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("1777801500845999999", "2026-05-03T09:45:00.845Z"),
        (1_777_801_500_000_000_000, "2026-05-03T09:45:00.000Z"),
        (0, None),
        ("-5", None),
        ("x", None),
        (10**19 * 10, None),
    ],
)
def test_nanoseconds_become_milliseconds_cut(told, text):
    assert otlp_values.utc_from_nanoseconds(otlp_values.nanoseconds(told)) == text


@pytest.mark.parametrize(
    ("told", "moment"),
    [
        ("2026-05-03T09:45:00.1Z", 1_777_801_500_100_000_000),
        ("2026-05-03T11:45:00.000001+02:00", 1_777_801_500_000_001_000),
        ("2026-05-03T09:45:00.1234567", 1_777_801_500_123_456_000),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        (7, None),
    ],
)
def test_times_as_text_are_utc_unless_they_say_otherwise(told, moment):
    assert otlp_values.nanoseconds_of_text(told) == moment
