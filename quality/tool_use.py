"""How the tools of a tenant did lately, by name."""

import datetime as dt
from dataclasses import dataclass

from django.db.models import Count, Q
from django.utils import timezone

from quality.models import ToolCall

PERIOD = dt.timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Use:
    num_calls: int = 0
    num_errors: int = 0


def last_days() -> dict[str, Use]:
    """Calls and errors of the last seven days for each tool that was called; one query."""
    since = timezone.now() - PERIOD
    counts = ToolCall.objects.filter(started_at__gte=since).values_list("tool_name")
    found = counts.annotate(calls=Count("id"), errors=Count("id", filter=Q(is_error=True))).order_by()
    return {name: Use(calls, errors) for name, calls, errors in found}
