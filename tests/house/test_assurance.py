"""docs/assurance.md: each requirement stands there once, what is done names its tests, and the tests are there."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/assurance.md"
COUNTS = {"R": 26, "T": 16, "S": 10, "W": 22, "B": 27, "D": 10, "Q": 11}  # the chapters, in their order
STATES = {"done", "open", "not applicable"}
_TEST = re.compile(r"`(tests/[\w/]+\.py)(::[\w:]+)?`")
_ROW = re.compile(r"\| ([A-Z]\d+) \| ([CHML]) \| (.+?) \| (.+?) \| (.*?) \|")


@dataclass(frozen=True)
class Row:
    number: str
    severity: str
    asks: str
    state: str
    proof: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Files and names of the tests that prove it."""
        return [(path, name.removeprefix("::")) for path, name in _TEST.findall(self.proof)]


def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if re.match(r"\| [A-Z]\d", line)]
    found = [_ROW.fullmatch(line) for line in lines]
    assert [line for line, match in zip(lines, found, strict=True) if match is None] == []
    return [Row(*match.groups()) for match in found if match]


@cache
def names_in(path: str) -> set[str]:
    """Names of the tests of a file as pytest writes them, `Class::test_name` included."""
    names = set()
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return {name for name in names if name.rpartition("::")[2].startswith("test_")}


def test_each_requirement_stands_there_once_and_in_order() -> None:
    expected = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
    assert [row.number for row in rows()] == expected


def test_each_named_test_is_there() -> None:
    missing = [
        f"{row.number}: {path}::{name}"
        for row in rows()
        for path, name in row.tests
        if not (ROOT / path).is_file() or name not in names_in(path)
    ]
    assert missing == []


def test_a_state_is_one_of_three_and_says_what_it_has_to() -> None:
    """Done has a test; what is open or does not apply says why."""
    for row in rows():
        assert row.state in STATES, row.number
        if row.state == "done":
            assert row.tests, row.number
        else:
            assert _TEST.sub("", row.proof).strip(" ,;."), row.number


def test_the_counts_above_the_tables_are_those_of_the_tables() -> None:
    found = rows()
    told = dict(re.findall(r"^\| (done|open|not applicable) \| ([\d |]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE))
    for state in STATES:
        counted = [sum(row.state == state and row.severity == severity for row in found) for severity in "CHML"]
        assert [int(number) for number in told[state].split(" | ")] == [*counted, sum(counted)], state
