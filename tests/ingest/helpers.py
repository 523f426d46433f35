"""Traces of bytes, and what a tenant holds, as values to compare."""

import io
import json
from typing import Any

from quality.ingest.items import Parsed
from quality.ingest.reader import ItemError, Reader
from quality.ingest.records import TurnRecord
from quality.ingest.store import BatchReport, batches, store
from quality.ingest.traces import AUTO, Traces
from quality.models import ToolCall, Toolset, Turn
from tenants.models import Tenant
from tenants.scope import tenant_scope

NEUTRAL = {"external_id": "run-1", "tool_name": "get_order", "args": {"n": "7"}, "result": {"status": "sent"}}


def lines(*items: Any) -> bytes:
    return "\n".join(json.dumps(item) for item in items).encode()


def outcomes(data: bytes, format_name: str = AUTO) -> list[Parsed | ItemError]:
    return list(Traces(Reader(io.BytesIO(data).read), format_name=format_name))


def turns(data: bytes | dict[str, Any] | list[Any], format_name: str = AUTO) -> list[TurnRecord]:
    """All turns; fails if an item was refused."""
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    found = outcomes(data, format_name)
    refused = [item for item in found if isinstance(item, ItemError)]
    assert not refused
    return [turn for item in found for turn in item.turns]


def refusals(data: bytes, format_name: str = AUTO) -> list[ItemError]:
    return [item for item in outcomes(data, format_name) if isinstance(item, ItemError)]


def take(data: bytes | list[Any], tenant: Tenant, format_name: str = AUTO) -> BatchReport:
    """Store a small file."""
    data = data if isinstance(data, bytes) else lines(*data)
    total = BatchReport()
    for good, bad in batches(iter(outcomes(data, format_name))):
        report = store(good, tenant=tenant)
        total.accepted += report.accepted
        total.unchanged += report.unchanged
        total.rejected += [*bad, *report.rejected]
        total.num_turns += report.num_turns
        total.num_calls += report.num_calls
    return total


def state(tenant: Tenant) -> dict[str, Any]:
    """All that ingest writes of this tenant, without row ids and our own clock."""
    with tenant_scope(tenant):
        shas = dict(Toolset.objects.values_list("pk", "sha256"))
        names = dict(Turn.objects.values_list("pk", "external_id"))
        turn_rows = [_plain(row, shas, names) for row in Turn.objects.order_by("source", "external_id").values()]
        call_rows = [_plain(row, shas, names) for row in ToolCall.objects.order_by("source", "external_id").values()]
    return {"turns": turn_rows, "calls": call_rows, "toolsets": sorted(shas.values())}


def _plain(row: dict[str, Any], shas: dict[int, str], names: dict[int, str]) -> dict[str, Any]:
    row = {name: bytes(value) if isinstance(value, memoryview) else value for name, value in row.items()}
    row["toolset"] = shas.get(row.pop("toolset_id"))
    if "turn_id" in row:
        row["turn"] = names[row.pop("turn_id")]
    if not row["time_recorded"]:
        row.pop("started_at")
    for ours in ("id", "created_at", "tenant_id"):
        row.pop(ours)
    return row
