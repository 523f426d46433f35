"""Durable turns in one worker process against the same requests by bare httpx, in one run.

    bin/bench turns [--turns 200] [--delay 1.0]

One Celery worker, one scripted model in a process of its own, this machine's database. All turns become visible in one
commit; the clock stops when the last is at rest. "Bare" sends byte for byte what the worker sent, as many at once.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from django.db import connection

from benchmarks import database
from benchmarks.engine_loop import bare_of, scripted_server

ROUNDS = 3
TABLES = ("agent_turns", "agent_turn_runs", "agent_turn_replies", "agent_tool_calls", "turn_events")


@contextmanager
def worker(base_url: str, delay_s: float, slots: int) -> Iterator[None]:
    """One worker process; ready when the block begins."""
    command = [sys.executable, "-m", "celery", "-A", "quality.celery:app", "worker", "-Q", "turns", "--pool=threads"]
    command += ["--concurrency=2", "--without-mingle", "--without-gossip", "--without-heartbeat", "--loglevel=INFO"]
    environment = {
        **os.environ,
        "TURN_SETUP": "benchmarks.turn_setup.setup",
        "TURN_SLOTS": str(slots),
        "TURN_TENANT_SLOTS": str(slots),
        "BENCH_MODEL_URL": base_url,
        "BENCH_DELAY_S": str(delay_s),
        "LOG_LEVEL": "INFO",
        "DATABASE_POOL_SIZE": "16",
    }
    with (
        tempfile.NamedTemporaryFile() as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        deadline = time.monotonic() + 60
        while b" ready." not in Path(log.name).read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"The worker did not start:\n{Path(log.name).read_text()[-2000:]}")
            time.sleep(0.05)
        try:
            yield
        finally:
            process.terminate()


def run_turns(tenant_id: int, number: int) -> tuple[float, int]:
    """Seconds from the commit to the last turn's end, and the rows that were written meanwhile."""
    from quality.models import Channel, TurnRun, TurnState
    from quality.turns.create import create_turn
    from tenants.scope import tenant_scope

    before = num_rows(tenant_id)
    with tenant_scope(tenant_id):
        for _ in range(number):
            create_turn(text="What is the weather in Rome?", channel=Channel.API)
        created = num_rows(tenant_id)
    started = time.perf_counter()
    while True:
        with tenant_scope(tenant_id):
            live = TurnRun.objects.filter(state__in=[TurnState.QUEUED, TurnState.RUNNING]).count()
        if not live:
            break
        time.sleep(0.02)
    took_s = time.perf_counter() - started
    with tenant_scope(tenant_id):
        assert not TurnRun.objects.exclude(state=TurnState.DONE).exists()
    assert created > before
    return took_s, num_rows(tenant_id) - created


def num_rows(tenant_id: int) -> int:
    from tenants.scope import tenant_scope

    with tenant_scope(tenant_id), connection.cursor() as cursor:
        counts = " + ".join(f"(SELECT count(*) FROM {table})" for table in TABLES)
        cursor.execute(f"SELECT {counts}")
        return int(cursor.fetchone()[0])


async def run_bare(base_url: str, bodies: list[bytes], delay_s: float, number: int) -> float:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
    async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=120) as client:
        bare = bare_of(base_url, client, bodies, delay_s)
        started = time.perf_counter()
        await asyncio.gather(*(bare() for _ in range(number)))
        return time.perf_counter() - started


def bodies_of(base_url: str) -> list[bytes]:
    """The two requests of the last turn."""
    asked = httpx.get(base_url.removesuffix("/v1") + "/asked", timeout=60, trust_env=False).json()
    return [json.dumps(ask["body"], ensure_ascii=False).encode() for ask in asked[-2:]]


def main(arguments: list[str] | None = None) -> None:
    from tenants.models import Tenant

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--delay", type=float, default=1.0, help="seconds that the model takes for each reply")
    options = parser.parse_args(arguments)
    with database.database(), scripted_server() as base_url:
        tenant = Tenant.objects.create_tenant(slug="bench", name="Bench")
        with worker(base_url, options.delay, options.turns):
            run_turns(tenant.pk, 1)
            bodies = bodies_of(base_url)
            turns_s, bare_s, rows = [], [], 0
            for _ in range(ROUNDS):
                took_s, rows = run_turns(tenant.pk, options.turns)
                turns_s.append(took_s)
                bare_s.append(asyncio.run(run_bare(base_url, bodies, options.delay, options.turns)))
        worked_s, bare = statistics.median(turns_s), statistics.median(bare_s)
        sys.stdout.write(
            f"{options.turns} durable turns in flight, {options.delay:g} s wait  {bare / worked_s:5.2f} of bare httpx  "
            f"({options.turns / worked_s:.0f} turns/s, bare {options.turns / bare:.0f}; target 0.7)\n"
            f"load average of the machine meanwhile  {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n"
            f"rows written while they ran  {rows / worked_s:8.0f} a second  ({rows / options.turns:.1f} new a turn)\n"
        )


if __name__ == "__main__":
    main()
