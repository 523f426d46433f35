"""How fast exports are, and that their memory is flat: a granian process in front of a database full of calls.

    python -m benchmarks.export [200000] [--interface asginl|wsgi]

One JSON object a line: rows and megabytes a second of each export, what its entity tag costs (the time of a 304), and
how much memory the server took above what it had after a small one.
"""

import argparse
import json
import logging
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.database import database

PATHS = {
    "calls": "tool-calls/export.jsonl",
    "feedback": "tool-call-feedback/export.jsonl",
    "feedback as CSV": "tool-call-feedback/export.csv",
}
BASE = "/api/admin/quality/"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="?", default=200_000)
    parser.add_argument("--interface", default="asginl")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    with database() as admin, tempfile.TemporaryDirectory() as folder:
        headers = fill(options.rows)
        admin.execute("ANALYZE")
        from tests.service import running_service

        with running_service(Path(folder), interface=options.interface) as service:
            for name, path in PATHS.items():
                print(json.dumps({"name": name, **measure(service, BASE + path, headers)}), flush=True)


def fill(rows: int) -> dict[str, str]:
    """A tenant with so many calls, each with a label; the headers of one who may export them."""
    from tenants.models import Role, Tenant
    from tenants.scope import tenant_scope
    from tests.bulk import labelled_calls
    from tests.factories import MembershipFactory, make_token

    tenant = Tenant.objects.create_tenant(slug="bench", name="Bench")
    with tenant_scope(tenant):
        member = MembershipFactory(role=Role.ADMIN)
        _, text = make_token(member, "export:read")
        labelled_calls(rows, member.user, result_bytes=1000)
    return {"Authorization": f"Bearer {text}"}


def measure(service: Any, path: str, headers: dict[str, str]) -> dict[str, Any]:
    url = service.url + path
    with httpx.Client(headers=headers, timeout=300) as client:
        client.get(url, params={"limit": 500})
        before = peak = service.memory_bytes()
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.05):
                peak = max(peak, service.memory_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        begin, size, first = time.monotonic(), 0, 0.0
        with client.stream("GET", url) as response:
            tag = response.headers.get("ETag")
            for piece in response.iter_bytes(256 * 1024):
                first = first or time.monotonic() - begin
                size += len(piece)
                last = piece
        took = time.monotonic() - begin
        done.set()
        watcher.join()
        found: dict[str, Any] = {
            "first_byte_s": round(first, 2),
            "seconds": round(took, 1),
            "mb_per_s": round(size / 1e6 / took, 1),
            "mb": round(size / 1e6),
            "memory_grew_mib": round((peak - before) / 2**20, 1),
            "complete": b'"recordType":"_end"' in last or path.endswith("csv"),
        }
        if tag:
            begin = time.monotonic()
            answer = client.get(url, headers={"If-None-Match": tag})
            found |= {"304": answer.status_code == 304, "304_s": round(time.monotonic() - begin, 2)}
    return found


if __name__ == "__main__":
    main()
