import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.ingest import jsonfault
from quality.ingest.jsontext import MAX_BYTES, MAX_DEPTH, JsonError, dump, escape_surrogates, parse, storable


def fault(text: str | bytes, **options) -> JsonError:
    with pytest.raises(JsonError) as caught:
        parse(text if isinstance(text, bytes) else text.encode(), **options)
    return caught.value


@pytest.mark.parametrize(
    ("good", "bad", "code"),
    [
        ("[" * 101 + "]" * 101, "[" * 102 + "]" * 102, "too_deep"),
        ('{"a":' * 101 + "1" + "}" * 101, '{"a":' * 102 + "1" + "}" * 102, "too_deep"),
        ("9" * 308, "9" * 309, "number_out_of_range"),
        ("-" + "9" * 308, "-" + "9" * 309, "number_out_of_range"),
        ("0." + "1" * 308, "0." + "1" * 309, "number_out_of_range"),
        ("1.7976931348623157e308", "1.8e308", "number_out_of_range"),
        ("5e-324", "1e-324", "number_out_of_range"),
        ("0.0e-400", "0.1e-400", "number_out_of_range"),
        ('{"' + "k" * 1024 + '":1}', '{"' + "k" * 1025 + '":1}', "key_too_long"),
        ('{"' + "😀" * 1024 + '":1}', '{"' + "😀" * 1025 + '":1}', "key_too_long"),
        (" " * (MAX_BYTES - 1) + "1", " " * MAX_BYTES + "1", "too_large"),
        ('{"a":1,"A":2}', '{"a":1,"\\u0061":2}', "duplicate_key"),
        ('{"\\ud83d\\ude00":1}', '{"\\ud83d\\ude00":1,"😀":2}', "duplicate_key"),
        ("0", "00", "malformed_json"),
        ('"\\u00e9"', '"\\u00e"', "malformed_json"),
        ('"\x7f"', '"\x1f"', "malformed_json"),
        ("null", "nan", "malformed_json"),
        ("1E+5", "1E+", "malformed_json"),
        ("{}", "\ufeff{}", "malformed_json"),
        ("[1]", "[1]\x0b", "malformed_json"),
        ("[[]]", "[[]", "malformed_json"),
        ("1", "NaN", "non_finite_number"),
        ("-1", "-Infinity", "non_finite_number"),
    ],
)
def test_each_limit_has_two_sides(good, bad, code):
    parse(good.encode())
    assert fault(bad).code == code


def test_depth_is_counted_outside_strings():
    parse(json.dumps(["[" * 500, "]" * 500, '\\"[' * 99]).encode())
    assert fault('["]]]]",' + "[" * 101 + "]" * 101 + "]").code == "too_deep"


@pytest.mark.parametrize(
    "raw", [b'"\xc0\x80"', b'"\xed\xa0\xbd"', b'"\xe9"', b'"\xf4\x90\x80\x80"', '"a"'.encode("utf-16")]
)
def test_only_strict_utf_8_is_taken(raw):
    assert fault(raw).code == "invalid_utf8"


def test_a_latin_1_text_is_told_how_to_become_utf_8():
    assert "iconv" in fault('{"q":"José"}'.encode("latin-1")).message


def test_a_fault_is_told_with_its_place_and_field():
    error = fault('{"ü": [1,\n  {"a.b": {"c": 1, "c": 2}}]}')
    assert (error.code, error.offset, error.line, error.column) == ("duplicate_key", 30, 2, 20)
    assert error.path == '["\\xfc"][1]["a.b"].c'
    assert "'c'" in error.message.replace('"', "'")


@pytest.mark.parametrize(
    ("text", "column"),
    [("[1,]", 3), ('{"a":1,}', 7), ("[1 2]", 4), ('{"a" 1}', 6), ("{1:2}", 2), ('["ab', 2), ("[tru]", 2)],
)
def test_a_fault_is_found_at_the_same_place_on_every_python(text, column):
    error = fault(text)
    assert (error.code, error.column) == ("malformed_json", column)


def test_a_path_stays_short_however_deep_the_fault():
    assert len(fault('{"aaaaaaaaaa":' * 101 + "x").path) <= 200


def test_parts_keep_their_spelling():
    root = parse(b'{"b": 1.10 ,"a":{"z":1E5,"y":-0, "x":[ 18446744073709551616 ]},"t":"\\u00e9\\/"}')
    assert root.members["b"].text == "1.10"
    assert root.members["a"].text == '{"z":1E5,"y":-0, "x":[ 18446744073709551616 ]}'
    assert root.members["a"].members["x"].elements[0].text == "18446744073709551616"
    assert root.members["t"].text == '"\\u00e9\\/"'
    assert list(root.members) == ["b", "a", "t"]


def test_parts_keep_their_spelling_beside_lone_surrogates():
    root = parse('{"\\ud800": "\\udc00 ü" , "x" : [ 1.0 , {"\\ud801":2} ] }'.encode())
    assert root.members["\ud800"].text == '"\\udc00 ü"'
    assert [element.text for element in root.members["x"].elements] == ["1.0", '{"\\ud801":2}']


def test_repeated_keys_pass_where_a_model_wrote_them():
    root = parse(b'{"a":1,"a":2}', repeated_keys=True)
    assert (root.value, root.text) == ({"a": 2}, '{"a":1,"a":2}')
    assert fault(b'{"a":1,"a":NaN}', repeated_keys=True).code == "non_finite_number"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
SURROGATES = st.text(st.characters(codec=None), max_size=10)


@given(JSON, st.sampled_from([None, 0, 2]))
def test_every_value_survives_with_all_its_parts(value, indent):
    root = parse(json.dumps(value, indent=indent).encode())
    assert root.value == value
    for part in [*root.members.values(), *root.elements]:
        assert json.loads(part.text) == part.value


@given(SURROGATES)
def test_any_text_can_be_kept_as_evidence_and_shown(text):
    kept = dump({text: text})
    assert json.loads(kept.encode()) == {text: text}
    assert escape_surrogates(kept) == kept
    assert "\0" not in kept
    shown = storable(text)
    shown.encode()
    assert len(shown) == len(text)
    assert "\0" not in shown


MUTATIONS = [
    *'{}[]",:\\ \n',
    "1",
    "-0",
    "1.5e3",
    "NaN",
    "1e400",
    "true",
    "nul",
    '"a"',
    '"\\ud800"',
    "é",
    "\ufeff",
    "\x00",
]


@given(st.lists(st.sampled_from(MUTATIONS), max_size=12), st.booleans())
def test_the_fast_and_the_exact_reading_agree(pieces, wrapped):
    text = f'{{"x":{"".join(pieces)}}}' if wrapped else "".join(pieces)
    walk = jsonfault._Walk(text, MAX_DEPTH + 1, repeated_keys=False)
    try:
        walk.document()
        exact = None
    except jsonfault._Fault as found:
        exact = found.code
    try:
        parse(text.encode())
        fast = None
    except JsonError as error:
        fast = error.code
    assert fast == exact


@given(st.binary(max_size=60))
def test_no_bytes_break_the_parser(raw):
    try:
        parse(raw)
        offset = 0
    except JsonError as error:
        offset = error.offset
    assert 0 <= offset <= len(raw)
