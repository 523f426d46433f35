"""Reports for machines and people: JUnit as CI systems read it, Markdown without markup of models, JSON, progress."""

import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from engine.providers.wire import Completion
from quality.cases.gate import Exit
from quality.cases.junit import junit
from quality.cases.markdown import markdown
from quality.cases.report import Entry, Outcome, Report
from quality.cases.terminal import Progress, table
from tests.cases.suite import look, made, playing, right, run, written

HOSTILE = "\x1b[31m\x00\u202e]]> <script>&\ud800 | `x` **b** [l](http://x) ![i](x) @user #1\r\nline"

# The rules of the JUnit schema that Jenkins' xUnit plugin checks with (junit-10), by element: attributes that must be
# there, others that may, and children. GitLab, GitHub's reporters and Azure read a part of the same.
RULES: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"name"}, {"time", "classname", "group"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "skipped": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}


def checked(text: str) -> ET.Element:
    """The root of a document that keeps the rules, with counts that are true."""
    root = ET.fromstring(text.encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional, children = RULES[element.tag]
        assert required <= set(element.keys()) <= required | optional, element.tag
        assert {child.tag for child in element} <= children, element.tag
        if element.get("time") is not None:
            assert re.fullmatch(r"[0-9]+\.[0-9]{3}", element.get("time", ""))
    for suite in root.iter("testsuite"):
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "")) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, "")) == sum(case.find(tag) is not None for case in cases)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
    return root


def report_of(*entries: Entry, **more: Any) -> Report:
    given = {"mode": "replay", "source": HOSTILE, "started_at": "2026-11-30T10:00:00+00:00", "duration_s": 1234.5}
    return Report(**{**given, "exit": Exit.FAILED, "entries": entries, "verdict": HOSTILE, **more})


def hostile(outcome: Outcome = Outcome.FAILED) -> Entry:
    return Entry(case="REG-1", tool=HOSTILE, outcome=outcome, headline=HOSTILE, details=(HOSTILE,) * 3)


def test_a_run_as_junit(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2), made(3, status="archived"), made(4, right("exact")))
    out = tmp_path / "junit.xml"
    with playing(look(), look("7713"), look(), "status:400") as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--concurrency", 1,
                  "--out-junit", out)  # fmt: skip
    assert ran.returncode == 1
    root = checked(out.read_text())
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert list(cases) == ["REG-1", "REG-2", "REG-3", "REG-4"]
    assert [child.tag for child in cases["REG-1"]] == []
    [failure] = cases["REG-2"]
    assert (failure.tag, cases["REG-2"].get("classname")) == ("failure", "get_order")
    assert failure.get("message", "").endswith("get_order was called with order_number 7713; expected 7731.")
    assert [child.tag for child in cases["REG-3"]] == ["skipped"]
    assert [child.tag for child in cases["REG-4"]] == ["error"]
    properties = {each.get("name"): each.get("value") for each in root.iter("property")}
    assert (properties["REG-1.samples"], properties["REG-2.verdicts"], properties["outcome"]) == (
        "1/1",
        "fail",
        "failed",
    )


def test_faults_as_junit(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2, label="bad"))
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    ran = run("--file", file, "--out-junit", tmp_path / "j.xml", "--out-md", tmp_path / "s.md")
    assert ran.returncode == 2
    root = checked((tmp_path / "j.xml").read_text())
    assert [(case.get("name"), *(child.tag for child in case)) for case in root.iter("testcase")] == [
        ("fault 1", "error"),
        ("REG-1",),
        ("REG-2", "failure"),
    ]
    assert "no end of the export" in (tmp_path / "s.md").read_text()


def test_hostile_text_breaks_no_document() -> None:
    report = report_of(
        *(hostile(outcome) for outcome in Outcome), faults=[HOSTILE], reasons=[HOSTILE], notices=[HOSTILE]
    )
    root = checked(junit(report))
    assert "⟨ESC⟩" in (root.find(".//failure").text or "")  # type: ignore[union-attr]
    text = markdown(report)
    text.encode()
    assert "<script" not in text
    for mark in ("**b**", "`x`", "[l](", "![i]", " | `", "\x1b", "\u202e", "\r"):
        assert mark not in text
    json.loads(report.json().encode())
    shown = table(report, 80)
    shown.encode()
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_markdown_is_appended_and_the_worst_comes_first(tmp_path: Path) -> None:
    entries = [Entry(case=f"REG-{n}", tool="t", outcome=Outcome.PASSED, headline="ok") for n in range(150)]
    text = markdown(report_of(*entries, hostile()))
    rows = [line for line in text.splitlines() if line.startswith(("| ✅", "| ❌"))]
    assert (len(rows), rows[0][:3]) == (100, "| ❌")
    assert "51 more cases are in the JSON report." in text
    file, out = written(tmp_path / "cases.jsonl", made(1)), tmp_path / "s.md"
    for _ in range(2):
        run("--file", file, "--out-md", out)
    assert out.read_text().count("## Tool-call regressions: passed") == 2


def test_the_json_report_is_all_that_is_printed_if_asked(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1))
    with playing(Completion("\x1b\u2028 text")) as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--json", "--quiet")
    assert ran.stderr == ""
    report = json.loads(ran.stdout)
    assert report["cases"][0]["samples"][0]["reply"] == "\x1b\u2028 text"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_one_line_on_a_terminal_and_few_lines_elsewhere(*, is_terminal: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    stream = Stream()
    progress = Progress(1000, stream)
    for number in range(1000):
        progress.step(is_error=number == 7)
    text = stream.getvalue()
    assert "1000 of 1000 samples, 1 errors" in text
    assert text.count("\n") == (1 if is_terminal else 20)
    assert ("\x1b" in text) == is_terminal
