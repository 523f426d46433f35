"""Every page there is, as the URL configuration knows them, with ids of rows that `world.make_world` made."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver, reverse

from quality.models import (
    BulkAction,
    CoachRun,
    Export,
    Feedback,
    Import,
    Proposal,
    QueueEntry,
    Replay,
    ReplaySchedule,
    ReviewQueue,
    Schedule,
    ToolCall,
    Turn,
    TurnRun,
    Webhook,
)
from tenants.models import HttpToolRow, MaskRule, Membership, ModelEndpoint, Style
from tenants.scope import tenant_scope

# What answers a read and is no page: parts that htmx asks for, streams, files without an ending, ways out.
PARTS = {
    "bulk-progress", "call-args", "call-branch", "call-error", "call-result", "coach-preview", "export-fetch",
    "export-progress", "import-progress", "queue-preview", "replay-estimate", "replay-progress",
    "replay-schedule-preview", "review-correct", "schedule-preview", "suggestion-progress", "turn-events", "turn-live",
    "turn-message", "turn-messages",
}  # fmt: skip
FILES = (".csv", ".json", ".jsonl")
OF_VISITORS = {"signin", "signin-once", "invitation"}  # who is signed in is sent on


def _patterns(resolver: URLResolver, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for one in resolver.url_patterns:
        route = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from _patterns(one, route)
        else:
            yield route, one


def answers_reads(view: Callable[..., Any] | None) -> bool:
    """Whether no decorator of a view refuses GET."""
    while view is not None:
        allowed = inspect.getclosurevars(view).nonlocals.get("request_method_list")
        if allowed is not None and "GET" not in allowed:
            return False
        view = getattr(view, "__wrapped__", None)
    return True


def pages(slug: str, tenant_id: int) -> dict[str, str]:
    """Name and path of each page for who is signed in. Raises LookupError for one whose row is not known."""
    with tenant_scope(tenant_id):
        ids = _ids()
    found: dict[str, str] = {}
    for route, pattern in _patterns(get_resolver()):
        name = pattern.name or ""
        is_page = pattern.lookup_str.startswith("quality.pages.") and answers_reads(pattern.callback)
        if is_page and name not in PARTS | OF_VISITORS and not route.endswith(FILES):
            found[name] = reverse(name, kwargs=_kwargs(route, slug, ids))
    found["home"] += "?switch"  # without it one is sent to one's only tenant
    found["case-new"] += "?feedback={feedback}".format_map(ids["feedback"])
    return found


def _kwargs(route: str, slug: str, ids: dict[str, dict[str, int]]) -> dict[str, Any]:
    """Values of what a route has in brackets: those of the longest beginning of it that is known."""
    after = route.removeprefix("t/<slug:slug>/")
    known = next((ids[start] for start in sorted(ids, key=len, reverse=True) if after.startswith(start)), {})
    wanted = [name for name in re.findall(r"<\w+:(\w+)>", route) if name != "slug"]
    if unknown := set(wanted) - set(known):
        raise LookupError(
            f"{route}: which {', '.join(sorted(unknown))}? Make a row in tests.pages.world, and name it here."
        )
    given = {name: known[name] for name in wanted}
    return {**given, "slug": slug} if "<slug:slug>" in route else given


def _ids() -> dict[str, dict[str, int]]:
    def first(model: Any, column: str = "pk", **where: Any) -> int:
        return int(model.objects.filter(**where).order_by("pk").values_list(column, flat=True)[0])

    queue = first(ReviewQueue)
    return {
        "bulk/": {"pk": first(BulkAction)},
        "calls/": {"pk": first(ToolCall)},
        "cases/": {"number": 1_234},
        "coach/": {"pk": first(CoachRun)},
        "feedback": {"feedback": first(Feedback)},
        "export/": {"pk": first(Export)},
        "imports/": {"pk": first(Import)},
        "models/": {"pk": first(ModelEndpoint)},
        "proposals/": {"pk": first(Proposal)},
        "queues/": {"pk": queue, "entry": first(QueueEntry, queue=queue)},
        "replays/": {"pk": first(Replay), "number": 1_234},
        "replays/schedules/": {"pk": first(ReplaySchedule)},
        "reviewers/": {"pk": first(Membership, "user_id", role="admin")},
        "run/": {"pk": first(TurnRun, "turn_id")},
        "schedules/": {"pk": first(Schedule)},
        "settings/privacy/": {"pk": first(MaskRule)},
        "styles/": {"pk": first(Style)},
        "tools/": {"pk": first(HttpToolRow)},
        "turns/": {"pk": first(Turn)},
        "webhooks/": {"pk": first(Webhook)},
    }
