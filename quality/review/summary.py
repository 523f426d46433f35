"""What reviewers found, in numbers: for the overview page and the API. Needs an open tenant scope.

Calls and errors are counted where they happened, labels on the items of the same time: so rates of a period compare.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Count, Q
from django.utils import timezone

from quality import rollups
from quality.calls import WITH_ARCHIVED, CallFilter
from quality.models import ACTIONABLE, Hint, Import, Label
from quality.review import rates
from quality.review.hints import BY_NAME, Rule
from quality.review.items import turns_without_call

PERIOD = dt.timedelta(days=30)
TOP = 10
LAST_IMPORTS = 5


@dataclass(frozen=True, kw_only=True)
class ToolSummary:
    """One tool in a period. `labels` counts items by their newest label; absent ones are 0."""

    tool_name: str
    num_calls: int = 0
    num_errors: int = 0
    num_outcomes: int = 0
    labels: dict[str, int] = field(default_factory=dict)

    @property
    def error_rate(self) -> float | None:
        """Errors per call whose outcome was recorded; None where none was."""
        return self.num_errors / self.num_outcomes if self.num_outcomes else None

    @property
    def num_labelled(self) -> int:
        return sum(self.labels.values())

    @property
    def num_actionable(self) -> int:
        return sum(self.labels.get(label, 0) for label in ACTIONABLE)

    @property
    def actionable_rate(self) -> float | None:
        """Actionable labels per labelled call; None where no call is labelled."""
        return self.num_actionable / self.num_labelled if self.num_labelled else None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A period in numbers. `labels` counts calls and turns by their newest label; `tools` are by number of calls."""

    since: dt.datetime
    until: dt.datetime
    num_calls: int
    num_errors: int
    num_turns_without_call: int
    labels: dict[str, int]
    tools: list[ToolSummary]

    @property
    def num_labelled(self) -> int:
        return sum(self.labels.values())

    @property
    def top_failing(self) -> list[ToolSummary]:
        """Tools with faults, those first that reviewers found most in, then those with most errors."""
        failing = [tool for tool in self.tools if tool.num_actionable or tool.num_errors]
        return sorted(failing, key=lambda tool: (-tool.num_actionable, -tool.num_errors, tool.tool_name))[:TOP]


def in_period(wanted: CallFilter | None = None) -> CallFilter:
    """The filter with both ends of its period: the last 30 days, unless it says otherwise. Figures count the archive
    too: to clear a list must not change what was measured."""
    wanted = wanted or CallFilter()
    until = wanted.until or timezone.now()
    return replace(wanted, since=wanted.since or until - PERIOD, until=until, archived=WITH_ARCHIVED)


def summarise(wanted: CallFilter | None = None, counts: Iterable[rollups.Count] | None = None) -> Summary:
    """What a filter lets through (of it tools, style, model, source, toolset and time count), by default all of the
    last 30 days. Three queries; calls are counted by the hour already, and not again if `counts` brings them by tool,
    of one time or of several."""
    period = in_period(wanted)
    assert period.since
    assert period.until
    labelled = (
        rates.labelled(period).values_list("tool_name", "label").annotate(number=Count("pk"), on_calls=Count("call_id"))
    )
    labels: Counter[str] = Counter()
    by_tool: dict[str, dict[str, int]] = {}
    for tool_name, label, number, on_calls in labelled:
        labels[label] += number
        if on_calls:
            by_tool.setdefault(tool_name, {})[label] = on_calls
    calls: dict[str, tuple[int, int, int]] = {}
    for one in rollups.by_tool(period) if counts is None else counts:
        before = calls.get(one.key, (0, 0, 0))
        calls[one.key] = (before[0] + one.num_calls, before[1] + one.num_errors, before[2] + one.num_outcomes)
    tools = [
        ToolSummary(
            tool_name=name,
            num_calls=num_calls,
            num_errors=num_errors,
            num_outcomes=num_outcomes,
            labels=by_tool.get(name, {}),
        )
        for name, (num_calls, num_errors, num_outcomes) in calls.items()
    ]
    tools.sort(key=lambda tool: (-tool.num_calls, tool.tool_name))
    return Summary(
        since=period.since,
        until=period.until,
        num_calls=sum(tool.num_calls for tool in tools),
        num_errors=sum(tool.num_errors for tool in tools),
        num_turns_without_call=turns_without_call(period).count(),
        labels={label: labels[label] for label in Label.values},
        tools=tools,
    )


@dataclass(frozen=True, kw_only=True)
class HintSummary:
    """How many calls, and how many replies without a call, have a hint of a rule."""

    rule: Rule
    num_calls: int
    num_turns: int


def hints_in(period: CallFilter) -> list[HintSummary]:
    """Hints on the calls and turns of a period, by rule, those first of which there are most. Of a filter tool, style,
    model, source, toolset and time count. One query."""
    of_calls, of_turns = (
        Q(**{f"{prefix}{column}": value for column, value in columns.items() if value})
        for prefix, columns in (
            ("call__", _columns(period) | {"tool_name__in": period.tools}),
            ("turn__", _columns(period)),
        )
    )
    hints = Hint.objects.filter(rule__in=list(BY_NAME), started_at__gte=period.since, started_at__lt=period.until)
    if period.tools:
        # A reply without a call is of no tool. The calls' own times let their index be read by tool and period.
        hints = hints.filter(of_calls, call__started_at__gte=period.since, call__started_at__lt=period.until)
    else:
        hints = hints.filter((Q(call__isnull=False) & of_calls) | (Q(call=None) & of_turns))
    rows = (
        hints.values_list("rule")
        .annotate(calls=Count("call", distinct=True), turns=Count("turn", distinct=True, filter=Q(call=None)))
        .order_by()
    )
    found = [HintSummary(rule=BY_NAME[name], num_calls=calls, num_turns=turns) for name, calls, turns in rows]
    return sorted(found, key=lambda one: (-one.num_calls - one.num_turns, one.rule.name))


def _columns(period: CallFilter) -> dict[str, Any]:
    return {
        "style_id": period.style,
        "model": period.model,
        "source": period.source,
        "toolset__sha256": period.toolset,
    }


def last_imports() -> list[Import]:
    """The newest imports, with `created_by` loaded."""
    return list(Import.objects.select_related("created_by").order_by("-created_at", "-id")[:LAST_IMPORTS])
