"""The gateway against the same model server without it, in one run: until the first byte of a reply, and until its end.

    bin/bench gateway [--rounds 5] [--requests 200] [--delay 1.0]

The scripted model and the service run in processes of their own; clients keep their connections, and the two ways are
asked in turn. One client asks a model that answers at once; 64 ask one that takes `--delay` seconds, one after the
other, so that what is measured is the gateway and not a machine at its limit; and 64 ask as fast as they can. Replies
are streams of some forty chunks, passed on as they come (no tools offered) or looked through for calls in the text, and
all of them are recorded meanwhile: the processor time of the service holds that, too. Lines are of the same shape as
those of `benchmarks.engine`; `beyond` is in ms.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import database
from benchmarks.engine_loop import scripted_server
from benchmarks.figures import figure

MANY = 64
SETTLE_S = 5.0  # until the last requests of a kind are recorded
END = b"0\r\n\r\n"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True)
class Target:
    """Where requests go, and what they say."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def request(self) -> bytes:
        parts = urlsplit(self.url)
        body = json.dumps(self.body).encode()
        told = {
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **self.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        return f"POST {parts.path}/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + body


class Client:
    """One connection that is kept. A client of httpx would cost more than the gateway does."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._request = target.request

    async def __aenter__(self) -> "Client":
        parts = urlsplit(self._target.url)
        self._reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self) -> tuple[float, float]:
        """Seconds until the first byte of the body, and until its end."""
        started = time.perf_counter()
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], head
        seen = await self._reader.read(65536)
        first_s = time.perf_counter() - started
        while not seen.endswith(END):
            chunk = await self._reader.read(65536)
            assert chunk, seen
            seen += chunk
        assert b"[DONE]" in seen
        return first_s, time.perf_counter() - started


async def measure(target: Target, clients: int, requests: int, delay_s: float) -> tuple[float, float, float]:
    """Median seconds until the first byte and until the end, and requests a second."""
    seen: list[tuple[float, float]] = []

    async def work(place: int, number: int) -> None:
        async with Client(target) as client:
            await client.ask()  # the connections stand, here and behind the gateway
            ready.release()
            await begin.wait()
            await asyncio.sleep(delay_s * place / clients)
            seen.extend([await client.ask() for _ in range(number)])

    ready, begin = asyncio.Semaphore(0), asyncio.Event()
    tasks = [asyncio.create_task(work(place, max(requests // clients, 2))) for place in range(clients)]
    for _ in tasks:
        await ready.acquire()
    started = time.perf_counter()
    begin.set()
    await asyncio.gather(*tasks)
    took_s = time.perf_counter() - started
    return (
        statistics.median(first for first, _ in seen),
        statistics.median(all_ for _, all_ in seen),
        len(seen) / took_s,
    )


def compare(
    name: str, direct: Target, through: Target, *, clients: int, delay_s: float, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Figures of one way of asking."""

    def once(target: Target) -> tuple[float, float, float]:
        return asyncio.run(measure(target, clients, options.requests, delay_s))

    pairs = [(once(through), once(direct)) for _ in range(options.rounds)]
    for at, what in enumerate(("first byte", "whole reply")):
        ours_ms, direct_ms = ([pair[side][at] * 1000 for pair in pairs] for side in (0, 1))
        beyond = round(statistics.median(ours_ms) - statistics.median(direct_ms), 3)
        target = {} if at or (clients > 1 and not delay_s) else {"target": "< 5 beyond"}
        yield figure(f"{name}: {what}", "ms", ours_ms, direct_ms, "the same server", beyond=beyond, **target)
    if not delay_s:
        rates = ([pair[side][2] for pair in pairs] for side in (0, 1))
        yield figure(f"{name}: rate", "requests/s", *rates, "the same server")


def processor_s(service: Any) -> float:
    """What the service's processes have used so far."""
    from tests.service import family

    ticks = 0
    for pid in family(service.process.pid):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from quality.models import GatewayDay
    from tenants import endpoints
    from tenants.models import Membership, Role, Tenant, User
    from tenants.scope import tenant_scope
    from tenants.tokens import issue_token
    from tests.service import running_service

    with database.database(), scripted_server() as base_url, tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "OUTBOUND_ALLOW_CIDRS": "127.0.0.1/32",
            "OUTBOUND_ALLOW_PORTS": str(urlsplit(base_url).port),
            "GATEWAY_RATE_PER_MINUTE": "1000000",
            "LOG_LEVEL": "WARNING",
        }
        from django.conf import settings

        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [urlsplit(base_url).port]
        tenant = Tenant.objects.create_tenant(slug="bench", name="Bench")
        user = User.objects.create_user(email="bench@example.com")
        with tenant_scope(tenant):
            Membership.objects.create(user=user, role=Role.ADMIN)
            _, text = issue_token(name="bench", scopes=["gateway"], created_by=user, expires_at=None)
            endpoints.save_endpoint(
                endpoints.EndpointData(label="bench", base_url=base_url, model="plain_text"), actor=user
            )
        with running_service(Path(folder)) as service:
            for looked_at in (False, True):
                started_s, kind = processor_s(service), "looked through" if looked_at else "as it comes"
                before = num_requests(tenant)
                for clients, delay_s in ((1, 0.0), (MANY, options.delay), (MANY, 0.0)):
                    body = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
                    body |= {"tools": [TOOL]} if looked_at else {}
                    headers = {"X-Delay": str(delay_s), "X-Script": "plain_text"}
                    pace = " at full speed" if clients > 1 and not delay_s else ""
                    yield from compare(
                        f"{kind}, {clients} client{'s' * (clients > 1)}{pace}",
                        Target(base_url, headers, body),
                        Target(f"{service.url}/v1", headers | {"Authorization": f"Bearer {text}"}, body),
                        clients=clients,
                        delay_s=delay_s,
                        options=options,
                    )
                time.sleep(SETTLE_S)
                used_ms = (processor_s(service) - started_s) * 1000 / (num_requests(tenant) - before)
                yield {"name": f"{kind}: processor time", "value": round(used_ms, 2), "unit": "ms a request, recorded"}
        with tenant_scope(tenant):
            day = GatewayDay.objects.get()
        yield {"name": "recorded", "value": day.num_requests - day.num_gaps, "unit": f"of {day.num_requests} requests"}


def num_requests(tenant: Any) -> int:
    from quality.models import GatewayDay
    from tenants.scope import tenant_scope

    with tenant_scope(tenant):
        return sum(GatewayDay.objects.values_list("num_requests", flat=True))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The gateway against the same model server without it.")
    parser.add_argument("--rounds", type=int, default=5, help="measurements per figure, at least 2")
    parser.add_argument("--requests", type=int, default=200, help="in one measurement")
    parser.add_argument("--delay", type=float, default=1.0, help="seconds that the model takes where it takes its time")
    for line in run(parser.parse_args(arguments)):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
