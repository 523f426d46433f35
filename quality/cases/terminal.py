"""A report for people at a terminal, and the progress of a run: one line that is written over, or plain lines in CI."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, TextIO

from engine.visible import visible
from quality.cases.report import Outcome, Report

LINES_IN_CI: Final = 20  # of progress, at most
_WORDS = {Outcome.PASSED: "pass", Outcome.FAILED: "FAIL", Outcome.ERROR: "ERROR", Outcome.SKIPPED: "skip"}


def table(report: Report, width: int | None = None) -> str:
    """The cases as a table, details below those that did not pass, and the verdict last."""
    width = width or max(60, shutil.get_terminal_size((100, 24)).columns)
    return "".join(f"{line}\n" for line in _lines(report, width))


def _lines(report: Report, width: int) -> Iterator[str]:
    names = [visible(entry.case) for entry in report.entries]
    tools = [visible(entry.tool or "-") for entry in report.entries]
    wide = (max([len("case"), *map(len, names)]), min(28, max([len("tool"), *map(len, tools)])))
    if report.entries:
        yield f"{'':5}  {'case':{wide[0]}}  {'tool':{wide[1]}}  result"
    for entry, name, tool in zip(report.entries, names, tools, strict=True):
        yield _cut(f"{_WORDS[entry.outcome]:5}  {name:{wide[0]}}  {tool[: wide[1]]:{wide[1]}}  {entry.headline}", width)
        if entry.outcome is not Outcome.PASSED:
            yield from (f"         {visible(line)}" for line in entry.details)
    if report.entries:
        yield ""
    yield from (visible(f"fault: {fault}") for fault in report.faults)
    yield from (visible(f"note: {notice}") for notice in report.notices)
    for side in report.sides:
        yield visible(_side(side))
    yield from (visible(reason) for reason in report.reasons)
    counts = ", ".join(f"{report.count(outcome)} {outcome}" for outcome in Outcome if report.count(outcome))
    yield visible(f"{report.verdict} {counts or 'no cases'}. Exit code {int(report.exit)}.")


def _side(side: Mapping[str, Any]) -> str:
    rate, interval = side["rate"], side["interval"]
    told = "no judged sample" if rate is None else f"rate {rate:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"
    tokens = side["promptTokens"] + side["completionTokens"]
    cost = f", {side['cost']:.4g} spent" if side.get("cost") is not None else ""
    name = f"{side['name']} ({side.get('model') or 'stored answers'})"
    return f"{name}: {told}, {side['requests']} requests, {tokens:,} tokens{cost}"


def _cut(line: str, width: int) -> str:
    line = " ".join(visible(line).splitlines())
    return line if len(line) <= width else f"{line[: width - 1]}…"


class Progress:
    """How far a run is. `stream` is where it is told, usually the error output."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total, self._done, self._errors = total, 0, 0
        self._is_terminal = self._stream.isatty()

    def step(self, *, is_error: bool) -> None:
        self.at(self._done + 1, self._errors + is_error)

    def at(self, done: int, errors: int) -> None:
        """So many samples are there, and so many of them are errors."""
        before, self._done, self._errors = self._done, min(done, self._total), errors
        if self._done == before:
            return
        told = f"{self._done} of {self._total} samples" + (f", {self._errors} errors" if self._errors else "")
        every = max(1, self._total // LINES_IN_CI)
        if self._is_terminal:
            self._stream.write(f"\r{told}\x1b[K" + ("\n" if self._done == self._total else ""))
            self._stream.flush()
        elif self._done == self._total or self._done // every != before // every:
            self._stream.write(f"{told}\n")
            self._stream.flush()

    def say(self, words: str) -> None:
        """A line of its own."""
        self._stream.write(f"\r\x1b[K{words}\n" if self._is_terminal else f"{words}\n")
        self._stream.flush()
