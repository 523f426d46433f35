"""Arguments beside the schema that the model read."""

import pytest

from quality.review.arguments import argument_table, type_name

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "limit": {"type": ["integer", "null"]},
    },
    "required": ["city", "when"],
}


def statuses(args, schema=SCHEMA):
    return {row.name: row.status for row in argument_table(args, schema).rows}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ('{"city":"Rome","when":"now"}',
         {"city": "ok", "days": "absent", "unit": "absent", "limit": "absent", "when": "ok"}),
        ("{}", {"city": "missing", "days": "absent", "unit": "absent", "limit": "absent", "when": "missing"}),
        ('{"city":7,"when":1,"unit":"kelvin","days":[1,"b"],"limit":null}',
         {"city": "invalid", "days": "invalid", "unit": "invalid", "limit": "ok", "when": "ok"}),
        ('{"when":1,"town":"Rome","city":"Rome"}',
         {"city": "ok", "days": "absent", "unit": "absent", "limit": "absent", "when": "ok", "town": "unknown"}),
    ],
)  # fmt: skip
def test_rows_stand_in_the_order_of_the_schema_with_their_faults(args, expected):
    assert list(statuses(args).items()) == list(expected.items())


def test_reasons_name_what_is_wrong():
    table = argument_table('{"city":7,"when":1,"days":[1,"b"]}', SCHEMA)
    faults = {row.name: row.faults for row in table.rows if row.faults}
    assert faults == {"city": ("7 is not of type 'string'",), "days": ("[1]: 'b' is not of type 'integer'",)}
    assert table.checked
    assert table.num_faults == 2


def test_a_name_that_the_schema_allows_is_not_unknown():
    assert statuses('{"anything":1}', {"type": "object", "additionalProperties": True}) == {"anything": "ok"}
    assert statuses('{"anything":1}', {"type": "object", "additionalProperties": False}) == {"anything": "unknown"}


@pytest.mark.parametrize(
    ("args", "note"),
    [
        (None, "No arguments were recorded."),
        ('"get the weather in Rome"', "The model wrote text that is not a JSON object."),
        ("[1,2]", "These arguments are JSON, but not an object."),
        ("null", "These arguments are JSON, but not an object."),
        ('{"city":', "This is not JSON: Expecting value: line 1 column 9 (char 8)"),
        ("[" * 100_000, "This is not JSON: Nested too deep to be shown as a tree."),
    ],
)
def test_arguments_that_are_no_object_are_shown_as_such(args, note):
    table = argument_table(args, SCHEMA)
    assert table.notes == [note]
    assert table.rows == []
    assert not table.checked


def test_without_a_schema_nothing_is_checked():
    table = argument_table('{"a":1}', None)
    assert [row.status for row in table.rows] == ["ok"]
    assert "not recorded" in table.notes[0]
    assert not table.checked


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "strin"}}},
        {"type": "object", "properties": {"a": {"$ref": "http://attacker.example/schema"}}},
        {"type": "array"},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_cannot_be_used_is_said_and_nothing_is_fetched(schema):
    table = argument_table('{"a":"b"}', schema)
    assert table.notes[0].startswith("Not checked: the tool's schema cannot be used")
    assert not table.checked


def test_a_schema_that_refers_to_itself_ends():
    schema = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}
    assert "cannot be checked" in argument_table('{"a":1}', schema).notes[0]


def test_a_slow_pattern_does_not_hold_the_page():
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    table = argument_table('{"a":"' + "a" * 40 + '!"}', schema)
    assert table.notes == ["a pattern of the schema takes too long to check"]


def test_numbers_keep_their_spelling_and_a_repeated_key_is_told():
    table = argument_table('{"n":12345678901234567890.10,"n":1e400,"big":' + "9" * 5000 + "}", {"type": "object"})
    shown = {row.name: (row.node.text, row.repeated) for row in table.rows}
    assert shown == {"n": ("1e400", True), "big": ("9" * 5000, False)}


def test_many_arguments_are_cut_and_counted():
    args = "{" + ",".join(f'"a{number}":{number}' for number in range(250)) + "}"
    table = argument_table(args, {})
    assert len(table.rows) == 100
    assert table.hidden == 150


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "string (date)"),
        ({"type": ["integer", "null"]}, "integer | null"),
        ({"enum": ["a", "b", 3]}, "a | b | 3"),
        ({"enum": list("abcdefgh")}, "a | b | c | d | e | f | …"),
        ({"type": "array", "items": {"type": "number"}}, "array of number"),
        ({"type": "array", "items": {}}, "array of anything"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"const": 5}, "5"),
        ({}, ""),
    ],
)
def test_types_are_told_in_a_few_words(schema, name):
    assert type_name(schema) == name
