"""A report as Markdown, short enough for the summary of a CI job. What models wrote is shown as text, not as markup."""

import re
from collections.abc import Iterator
from typing import Final

from engine.visible import visible
from quality.cases.report import Entry, Outcome, Report

MAX_ROWS: Final = 100
MAX_CELL: Final = 300
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~$@&-])")
_URGENCY: Final = (Outcome.FAILED, Outcome.ERROR, Outcome.SKIPPED, Outcome.PASSED)
_SIGNS = {Outcome.PASSED: "✅", Outcome.FAILED: "❌", Outcome.ERROR: "⚠️", Outcome.SKIPPED: "⏭️"}


def markdown(report: Report) -> str:
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"## Tool-call regressions: {report.exit.name.lower().replace('_', ' ')}"
    yield ""
    yield f"**{cell(report.verdict)}** " + ", ".join(
        f"{report.count(outcome)} {outcome}" for outcome in Outcome if report.count(outcome)
    )
    yield ""
    for line in [*report.reasons, *report.faults, *report.notices]:
        yield f"- {cell(line)}"
    if report.reasons or report.faults or report.notices:
        yield ""
    yield from _sides(report)
    yield from _table(report)


def _sides(report: Report) -> Iterator[str]:
    if not report.sides:
        return
    yield "| side | model | rate | requests | tokens | p50 / p95 ms |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for side in report.sides:
        rate, interval, latency = side["rate"], side["interval"], side["latencyMs"]
        told = "" if rate is None else f"{rate:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"
        tokens = side["promptTokens"] + side["completionTokens"]
        cells = [side["name"], side.get("model") or "", told, str(side["requests"]), f"{tokens:,}"]
        cells.append(f"{latency['p50']} / {latency['p95']}" if latency["p50"] is not None else "")
        yield f"| {' | '.join(map(cell, cells))} |"
    yield ""


def _table(report: Report) -> Iterator[str]:
    shown = sorted(report.entries, key=lambda entry: _URGENCY.index(entry.outcome))[:MAX_ROWS]
    if not shown:
        return
    yield "| | case | tool | result | why |"
    yield "| --- | --- | --- | --- | --- |"
    for entry in shown:
        why = "<br>".join(cell(line) for line in _why(entry))
        cells = [_SIGNS[entry.outcome], *map(cell, (entry.case, entry.tool or "", entry.headline)), why]
        yield f"| {' | '.join(cells)} |"
    if len(report.entries) > len(shown):
        yield ""
        yield f"{len(report.entries) - len(shown)} more cases are in the JSON report."


def _why(entry: Entry) -> list[str]:
    return list(entry.details[:3]) if entry.outcome is not Outcome.PASSED else []


def cell(text: str) -> str:
    """Text inside a table, with nothing in it that means anything."""
    line = " ".join(visible(text).split())
    line = line if len(line) <= MAX_CELL else f"{line[:MAX_CELL]}…"
    return _MARKUP.sub(r"\\\1", line).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")
