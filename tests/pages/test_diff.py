"""The diff of two texts: what changed is shown, wherever in a long text it is."""

from quality.pages.diff import MAX_LINES, Line, diff

LONG = "\n".join(f"line {number}" for number in range(3 * MAX_LINES))


def kinds(lines: list[Line]) -> list[tuple[str, str]]:
    return [(line.kind, line.text) for line in lines if line.kind != "same"]


def test_the_same_text_has_no_diff() -> None:
    assert diff("", "") == diff(LONG, LONG) == []


def test_a_change_has_three_lines_around_it() -> None:
    lines = diff("a\nb\nc\nd\ne\nf\ng\nh\ni", "a\nb\nc\nd\nE\nf\ng\nh\ni")
    assert [line.text for line in lines] == ["b", "c", "d", "e", "E", "f", "g", "h"]
    assert kinds(lines) == [("removed", "e"), ("added", "E")]


def test_a_change_far_down_is_shown() -> None:
    old, new = f"{LONG}\nold\n{LONG}", f"{LONG}\nnew\n{LONG}"
    assert kinds(diff(old, new)) == [("removed", "old"), ("added", "new")]
    assert kinds(diff(LONG, f"{LONG}\nmore")) == [("added", "more")]
    assert kinds(diff(f"first\n{LONG}", LONG)) == [("removed", "first")]


def test_what_is_all_new_is_cut() -> None:
    assert len(diff("", LONG)) == MAX_LINES
