"""What pages cost in front of a million calls: queries, time, what they read, and the costliest step of their plans.

    python -m benchmarks.pages [words of names of pages] [--plans] [--keep]

The pages are asked for in this process by an admin of the largest tenant, as the role `app`, with row security on
(`benchmarks.world`). One JSON object a page: `ms`, the median of `ROUNDS`; `queries` and `sql_ms` in it; `buffers`,
the blocks that its queries read, and `rows`, what their scans went through (both of `EXPLAIN (ANALYZE, BUFFERS)`, which
other load does not move); `worst`, the query that read most, by its costliest scan; `seq`, statements that read the
table of calls from end to end. `--plans` prints plans of the worst to standard error.
"""

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from benchmarks import world
from benchmarks.database import database

ROUNDS: Final = 3
DEEP: Final = 100_000  # calls before a page far down the list


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one statement: blocks read, rows its scans went through, its costliest scan, its plan as text."""

    sql: str
    buffers: int
    rows: int
    ms: float
    worst: str
    plan: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="pages whose name holds one of these; all, without any")
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--keep", action="store_true", help="leave the database for the next run, and take its")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": plain}  # nothing is collected here
    with database(keep=options.keep) as admin:
        here = world.find(admin) or world.build(admin)
        for name, address in _addresses(here):
            if not options.names or any(word in name for word in options.names):
                costs, line = _measured(here, address)
                print(json.dumps({"name": name, **line}), flush=True)
                if options.plans and costs:
                    print(costs[0].sql[:2000], costs[0].plan, sep="\n", file=sys.stderr)


def _addresses(here: world.World) -> Iterator[tuple[str, str]]:
    """Names of pages, and where they are."""
    from django.urls import reverse

    from quality.calls import Cursor, Position
    from quality.models import Hint, Review, ToolCall
    from tenants.scope import tenant_scope

    def at(name: str, query: str = "", *args: Any) -> str:
        return reverse(name, args=[here.largest.slug, *args]) + (f"?{query}" if query else "")

    with tenant_scope(here.largest):
        newest = ToolCall.objects.order_by("-started_at", "-id")
        call = newest[40]
        deep = newest.values("started_at", "pk")[min(DEEP, newest.count() - 100)]
        cursor = Cursor(position=Position(at=deep["started_at"], id=deep["pk"]))
        labelled = Review.objects.filter(num_labels__gt=1).order_by("-started_at")[0]
        rule = Hint.objects.order_by("-started_at").values_list("rule", flat=True)[0]
    yield "overview", at("overview")
    yield "overview of a year", at("overview", "days=365")
    yield "overview of a tool", at("overview", "tool=tool_03")
    yield "overview by toolset", at("overview", "by=toolset")
    yield "charts", at("chart-page")
    yield "charts of a year", at("chart-page", "days=365")
    calls = {
        "": "",
        "of a tool, failed": "tool=tool_35&error=yes",
        "of a label": "label=wrong_tool",
        "without a label": "label=none",
        "of a hint": f"hint={rule}",
        "of any hint": "hint=any",
        "of a tag": "tag=rare",
        "of a tag and a tool": "tag=rare&tool=tool_35",
        "of a contact": f"contact={call.contact_id}",
        "of a contact that is not": "contact=nobody",
        "of a conversation": f"conversation={call.conversation_id}",
        "of a message": f"message={call.message_id}",
        "of a reply that was sent": f"outbound={call.outbound_message_id}",
        "of a source that is not": "source=nobody",
        "of a style and a model": "style=brief&model=large",
        "of a style that is not": "style=nobody",
        "archived": "archived=yes",
        "without an outcome": "error=none",
        "of a week": "from=2026-01-01&to=2026-01-07",
    }
    for name, query in calls.items():
        yield f"calls {name}".strip(), at("call-list", query)
    yield "calls far down", at("call-list", f"cursor={cursor}")
    yield "calls of a tool far down", at("call-list", f"tool=tool_03&cursor={cursor}")
    yield "call", at("call-detail", "", labelled.call_id)
    yield "call: similar", at("call-similar", "", call.pk)
    yield "turns", at("turn-list")
    yield "turn", at("turn-detail", "", call.turn_id)
    yield "review", at("review")
    yield "review after an item", at("review", f"after=call:{call.pk}")
    yield "review of a hint", at("review", "hint=any")
    yield "review of a tool", at("review", "tool=tool_35")
    yield "review of a contact that is not", at("review", "contact=nobody")
    yield "queues", at("queue-list")
    for name, pk in (("large", here.queue), ("useful", here.useful)):
        yield f"queue: {name}", at("queue-detail", "", pk)
        yield f"queue: {name}, review", at("queue-review", "", pk)
    yield "queue: large, done", at("queue-detail", "state=done", here.queue)
    yield "queue: preview", at("queue-preview", "kind=rule&tool=tool_03&sample_rate=50")
    yield "bulk actions", at("bulk-list")
    yield "agreement", at("agreement")
    yield "agreement of a year", at("agreement", "days=365")
    yield "agreement of a queue", at("agreement", f"queue={here.queue}")
    left, right = here.people[0].pk, here.people[1].pk
    yield "agreement: apart", at("agreement-apart", f"left={left}&right={right}")
    yield "reviewers", at("reviewers")
    yield "reviewer", at("reviewer", "", right)
    for name in ("proposal-list", "case-list", "replay-list", "suggestion-list", "coach", "guidelines", "view-list"):
        yield name, at(name)
    for name in ("import-list", "export", "webhook-list", "audit-list", "pending", "member-list", "mask-list"):
        yield name, at(name)


def _measured(here: world.World, address: str) -> tuple[list[Cost], dict[str, Any]]:
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from tenants.scope import tenant_scope

    client = Client()
    client.force_login(here.people[0])
    client.get(address)
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        answer = client.get(address)
        times.append((time.perf_counter() - begin) * 1000)
        if times[-1] > 5_000:
            break
    with CaptureQueriesContext(connection) as seen:
        client.get(address)
    asked = [query["sql"] for query in seen.captured_queries]
    with tenant_scope(here.largest):
        costs = [_cost(sql) for sql in asked if sql.lstrip().startswith(("SELECT", "WITH")) and "FROM" in sql]
    costs.sort(key=lambda cost: -cost.buffers)
    return costs, {
        "status": answer.status_code,
        "ms": round(statistics.median(times), 1),
        "queries": len(seen.captured_queries),
        "sql_ms": round(sum(float(query["time"]) for query in seen.captured_queries) * 1000, 1),
        "buffers": sum(cost.buffers for cost in costs),
        "rows": sum(cost.rows for cost in costs),
        "worst": costs[0].worst if costs else "",
        "worst_ms": round(costs[0].ms, 1) if costs else 0,
        "seq": sum("Seq Scan on agent_tool_calls" in cost.plan for cost in costs),
    }


def _cost(sql: str) -> Cost:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")
        found = cursor.fetchone()[0]
    top = (json.loads(found) if isinstance(found, str) else found)[0]
    scans = [node for node in _nodes(top["Plan"]) if "Relation Name" in node or "Index Name" in node]
    worst = max(scans, key=_blocks, default=None)
    said = ""
    if worst:
        passed = worst.get("Rows Removed by Filter", 0) + worst["Actual Rows"]
        named = worst.get("Index Name") or worst.get("Relation Name", "")
        said = f"{worst['Node Type']} {named}: {_blocks(worst)} blocks, {passed * worst['Actual Loops']:.0f} rows"
    lines = [_line(node, depth) for node, depth in _deep(top["Plan"])]
    return Cost(
        sql=sql,
        buffers=_blocks(top["Plan"]),
        rows=round(sum((n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) * n["Actual Loops"] for n in scans)),
        ms=top["Execution Time"] + top["Planning Time"],
        worst=said,
        plan="\n".join(lines),
    )


def _line(node: dict[str, Any], depth: int) -> str:
    named = f" on {node['Relation Name']}" if "Relation Name" in node else ""
    index = f" ({node['Index Name']})" if "Index Name" in node else ""
    conditions = " ".join(f"{key}: {node[key]}" for key in ("Index Cond", "Filter", "Hash Cond") if key in node)
    told = f"rows {node['Actual Rows']} x {node['Actual Loops']}, removed {node.get('Rows Removed by Filter', 0)}"
    cost = f"{_blocks(node)} blocks, {node['Actual Total Time']} ms"
    return f"{'  ' * depth}{node['Node Type']}{named}{index}: {told}, {cost} {conditions}"


def _blocks(node: dict[str, Any]) -> int:
    return int(node.get("Shared Hit Blocks", 0) + node.get("Shared Read Blocks", 0))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (one for one, _ in _deep(node))


def _deep(node: dict[str, Any], depth: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    yield node, depth
    for child in node.get("Plans", ()):
        yield from _deep(child, depth + 1)


if __name__ == "__main__":
    main()
