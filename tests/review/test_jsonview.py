"""JSON as people look at it: bounded, with its own spelling."""

import pytest

from quality.review.jsonview import MAX_CHILDREN, MAX_NODES, decode, preview, string_start, tree


def count(node):
    return 1 + sum(count(child) for _, child in node.children)


def test_a_tree_keeps_order_spelling_and_repeated_keys():
    node = tree(decode('{"b":1.50,"a":[true,null,"x"],"b":1E+2}'))
    assert [(key, child.kind, child.text) for key, child in node.children] == [
        ("b", "number", "1.50"), ("a", "array", ""), ("b", "number", "1E+2"),
    ]  # fmt: skip
    assert [child.text for _, child in node.children[1][1].children] == ["true", "null", "x"]


def test_a_wide_value_is_cut_and_says_how_much_is_hidden():
    node = tree(decode("[" + ",".join(["1"] * 1000) + "]"))
    assert len(node.children) == MAX_CHILDREN
    assert node.hidden == 1000 - MAX_CHILDREN


def test_a_bushy_value_stays_within_the_budget():
    row = "[" + ",".join(["1"] * 50) + "]"
    node = tree(decode("[" + ",".join([row] * 50) + "]"))
    assert count(node) <= MAX_NODES
    assert node.hidden > 0


def test_a_long_string_is_cut_at_a_whole_character():
    text = "👨\u200d👩\u200d👧" * 500
    node = tree(text, max_string=1001)
    assert len(node.text) <= 1001
    assert node.text == "👨\u200d👩\u200d👧" * (len(node.text) // 5)
    assert node.hidden == len(text) - len(node.text)


@pytest.mark.parametrize(
    ("args", "pairs"),
    [
        (None, []),
        ("{}", []),
        ('{"a":1,"b":"two","c":[1, 2],"d":{"e":1.50},"f":5}',
         [("a", "1"), ("b", "two"), ("c", "[1, 2]"), ("d", '{"e":1.50}')]),
        ('{"a":"' + "x" * 99 + '"}', [("a", "x" * 40 + "…")]),
        ('{"city":"Rome","note":"it is lo', [("city", "Rome"), ("note", "it is lo")]),
        ('{"city":"Rome","no', [("city", "Rome")]),
        ('{"n":12', [("n", "12")]),
        ('"just words"', [("", "just words")]),
        ('"cut off wor', [("", "cut off wor")]),
        ("[1,2,3]", [("", "[1,2,3]")]),
        ('{"a":"line\\nbreak"}', [("a", "line break")]),
    ],
)  # fmt: skip
def test_a_line_shows_up_to_four_pairs_of_whatever_is_there(args, pairs):
    assert preview(args) == pairs


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('"whole"', "whole"), ('"cut', "cut"), ('"line\\nbr', "line\nbr"), ('"at an escape\\', "at an escape"),
        ('"at a unicode escape \\u00', "at a unicode escape "), ("{}", "{}"), ("", ""),
    ],
)  # fmt: skip
def test_a_string_that_was_cut_anywhere_can_be_read(text, start):
    assert string_start(text).removesuffix('"') == start


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a":', "nonsense", ""])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011
        decode(text)
