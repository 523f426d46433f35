"""Tool calls a second by each way in, as ratios to raw COPY into the same table with the same indexes, in the same run.

    bin/with-services .venv/bin/python -m benchmarks.ingest [calls]

Ratios travel between machines, rates do not. The raw COPY is a superuser's: no row security, no identity, no parsing,
one commit. What is measured against it parses, checks, groups calls into turns (four to a turn), looks for what is
stored and commits batch by batch. Rounds alternate; the median of three counts.
"""

import hashlib
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from django.test import Client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.database import database  # makes Django ready for what follows
from quality.ingest.importer import create_import, run_import
from quality.ingest.reader import Reader
from quality.ingest.traces import Traces
from tenants.models import Role, Tenant
from tenants.scope import tenant_scope
from tests.factories import MembershipFactory, make_token

ROUNDS = 3
CALLS_OF_TURN = 4
BATCH = 1_000


def arguments(number: int) -> dict[str, Any]:
    return {"order": number, "note": "n" * 120, "filters": {"open": True, "since": "2026-05-12"}}


def result(number: int) -> list[dict[str, Any]]:
    return [{"id": f"ap-{number}-{n}", "at": "2026-05-12T09:00", "price": 12.5} for n in range(10)]


def records(count: int) -> list[bytes]:
    """Neutral records of some 900 bytes: arguments of 200, results of 660, as measured on real traces."""
    items = []
    for number in range(count):
        turn, index = divmod(number, CALLS_OF_TURN)
        record = {
            "external_id": f"run-{number}",
            "conversation": f"conversation-{turn // 5}",
            "message": f"message-{turn}",
            "index": index,
            "tool_call_id": f"call_{index}",
            "tool_name": f"tool_{number % 20}",
            "args": arguments(number),
            "result": result(number),
            "started_at": f"2026-05-{1 + number % 28:02}T08:30:{number % 60:02}.000Z",
            "model": "tiny-model",
        }
        items.append(json.dumps(record).encode())
    return items


def copy_rows(inside: psycopg.Connection, source: Tenant, target: Tenant) -> Callable[[], None]:
    """Raw COPY of the calls that `source` holds into `target`, over turns that are there already."""
    columns = [
        row[0]
        for row in inside.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'agent_tool_calls' "
            "AND column_name <> 'id' ORDER BY ordinal_position"
        )
    ]
    inside.execute(
        "INSERT INTO agent_turns (tenant_id, source, external_id, content_sha256, conversation_id, contact_id, "
        "message_id, outbound_message_id, state, end_reason, model, provider, style_id, prompt_version, position, "
        "num_calls, num_cycles, warnings, started_at, time_recorded, created_at) "
        "SELECT %s, source, external_id, content_sha256, '', '', '', '', state, '', '', '', '', '', 0, 0, 0, '{}', "
        "started_at, true, now() FROM agent_turns WHERE tenant_id = %s",
        [target.pk, source.pk],
    )
    chosen = ", ".join({"tenant_id": str(target.pk), "turn_id": "n.id"}.get(name, f"c.{name}") for name in columns)
    rows = inside.execute(
        f"SELECT {chosen} FROM agent_tool_calls c JOIN agent_turns o ON o.id = c.turn_id "
        "JOIN agent_turns n ON n.tenant_id = %s AND n.external_id = o.external_id WHERE c.tenant_id = %s ORDER BY c.id",
        [target.pk, source.pk],
    ).fetchall()

    def run() -> None:
        with inside.cursor() as cursor, cursor.copy(f"COPY agent_tool_calls ({', '.join(columns)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    return run


def import_file(tenant: Tenant, path: Path) -> None:
    with tenant_scope(tenant):
        job = create_import(filename=path.name, size=path.stat().st_size)
    done = run_import(job.pk, tenant=tenant, path=path)
    assert done is not None
    assert not done.num_rejected


def post(tenant: Tenant, items: list[bytes]) -> None:
    with tenant_scope(tenant):
        _, token = make_token(MembershipFactory(role=Role.OPERATOR), "ingest:write")
    client = Client()
    for start in range(0, len(items), BATCH):
        answer = client.post(
            "/api/ingest/tool-calls",
            b"\n".join(items[start : start + BATCH]),
            content_type="application/x-ndjson",
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 200, answer.content


def exports(count: int) -> list[bytes]:
    """The same calls as OTLP's requests in protobuf, as a collector sends them: 200 traces each of a model's span and
    four of tools."""
    requests = []
    for start in range(0, count, BATCH):
        request = ExportTraceServiceRequest()
        spans = request.resource_spans.add().scope_spans.add().spans
        for number in range(start, min(start + BATCH, count)):
            turn, index = divmod(number, CALLS_OF_TURN)
            trace = hashlib.sha256(f"trace {turn}".encode()).digest()[:16]
            begin = 1_778_574_600_000_000_000 + number * 1_000_000
            if index == 0:
                asked = [
                    {"type": "tool_call", "id": f"call_{n}", "name": f"tool_{(number + n) % 20}"}
                    for n in range(CALLS_OF_TURN)
                ]
                add_span(
                    spans.add(),
                    trace,
                    number + count,
                    begin - 1,
                    {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.conversation.id": f"conversation-{turn // 5}",
                        "gen_ai.response.id": f"message-{turn}",
                        "gen_ai.response.model": "tiny-model",
                        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": asked}]),
                    },
                )
            add_span(
                spans.add(),
                trace,
                number,
                begin,
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": f"tool_{number % 20}",
                    "gen_ai.tool.call.id": f"call_{index}",
                    "gen_ai.tool.call.arguments": json.dumps(arguments(number)),
                    "gen_ai.tool.call.result": json.dumps(result(number)),
                },
            )
        requests.append(request.SerializeToString())
    return requests


def add_span(span: Span, trace: bytes, number: int, begin: int, attributes: dict[str, str]) -> None:
    span.trace_id, span.span_id, span.name = trace, (number + 1).to_bytes(8), "span"
    span.start_time_unix_nano, span.end_time_unix_nano = begin, begin + 1_000_000
    for key, value in attributes.items():
        pair = span.attributes.add()
        pair.key, pair.value.string_value = key, value


def export(tenant: Tenant, requests: list[bytes]) -> None:
    with tenant_scope(tenant):
        _, token = make_token(MembershipFactory(role=Role.OPERATOR), "ingest:write")
    client = Client()
    for body in requests:
        answer = client.post(
            "/v1/traces", body, content_type="application/x-protobuf", headers={"Authorization": f"Bearer {token}"}
        )
        assert (answer.status_code, answer.content) == (200, b""), answer.content


def timed(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main(count: int) -> None:
    items = records(count)
    requests = exports(count)
    seconds: dict[str, list[float]] = {}
    with database() as inside, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.jsonl"
        path.write_bytes(b"\n".join(items))
        for number in range(ROUNDS):
            tenants = [
                Tenant.objects.create_tenant(slug=f"{way}-{number}", name=way)
                for way in ("file", "post", "otlp", "raw")
            ]
            by_file, by_post, by_otlp, raw = tenants
            ways = {
                "reading and checking alone": lambda: sum(
                    1 for _ in Traces(Reader(io.BytesIO(path.read_bytes()).read))
                ),
                "file import": lambda tenant=by_file: import_file(tenant, path),
                "the same file again": lambda tenant=by_file: import_file(tenant, path),
                "POST, NDJSON, 1,000 a request": lambda tenant=by_post: post(tenant, items),
                "OTLP, 1,000 calls a request": lambda tenant=by_otlp: export(tenant, requests),
            }
            for name, run in ways.items():
                seconds.setdefault(name, []).append(timed(run))
            seconds.setdefault("raw COPY", []).append(timed(copy_rows(inside, by_file, raw)))
    size = sum(map(len, items)) / count
    print(f"{count:,} calls of {size:.0f} bytes, {ROUNDS} rounds\n")
    print(f"{'way':32}{'calls/s':>10}{'ratio':>8}   each round")
    base = statistics.median(seconds["raw COPY"])
    for name, times in sorted(seconds.items(), key=lambda entry: statistics.median(entry[1])):
        middle = statistics.median(times)
        print(
            f"{name:32}{count / middle:>10,.0f}{base / middle:>8.2f}   {', '.join(f'{count / t:,.0f}' for t in times)}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
