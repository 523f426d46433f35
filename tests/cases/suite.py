"""Cases as files, a scripted model in a thread of its own, and the command as a shell runs it."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.providers.behaviours import Behaviour
from engine.providers.scripted import ScriptedServer
from engine.providers.wire import Completion
from quality.cases.record import Case, read_cases
from tests.cases.samples import calls, tool
from tests.cases.test_record import export, record

ROOT = Path(__file__).resolve().parents[2]
GET = tool("get_order", ("order_number",), order_number={"type": "string"}, note={"type": "string"})
CANCEL = tool("cancel_order", ("order_number",), order_number={"type": "string"})
TOOLS = [GET, CANCEL]
TIME = "2026-11-30T10:00:00Z"


def asked(text: str = "Where is order 7731?", *before: Mapping[str, Any], tools: Any = None) -> dict[str, Any]:
    """The input of a case whose recorded call named a wrong order."""
    messages = [*before, {"role": "user", "content": text}]
    return {"args": {"order_number": "7713"}, "messages": messages, "tools": tools or TOOLS, "now": TIME}


def expected(expectation: Mapping[str, Any]) -> dict[str, Any]:
    return {"behavior": "Does what the user asked for.", "expectation": expectation}


def right(mode: str = "first", **more: Any) -> dict[str, Any]:
    """Expects one look at order 7731."""
    return {**calls(mode, {"tool": "get_order", "args": {"order_number": "7731"}}), **more}


def made(number: int = 1, expectation: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The record of a case; its recording holds the results of orders 7713 and 7731."""
    stubs = [
        {"tool": "get_order", "arguments": {"order_number": "7713"}, "result": {"status": "unknown"}},
        {"tool": "get_order", "arguments": {"order_number": "7731"}, "result": {"status": "sent"}},
    ]
    given = {"input": asked(), "stubs": stubs, "expected": expected(expectation or right())}
    return record(number, **{**given, **changes})


def case_of(number: int = 1, expectation: Mapping[str, Any] | None = None, **changes: Any) -> Case:
    found = read_cases(export(made(number, expectation, **changes)))
    assert found.faults == []
    return found.cases[0]


def written(path: Path, *records: Mapping[str, Any], **end: Any) -> Path:
    path.write_bytes(b"".join(export(*records, **end)))
    return path


def look(number: str = "7731", **more: Any) -> Completion:
    return Completion(calls=(("get_order", json.dumps({"order_number": number, **more})),))


def say(text: str = "It was sent.") -> Completion:
    return Completion(text)


@dataclass(frozen=True)
class Playing:
    """A model server under way; `bodies` are the requests it got."""

    server: ScriptedServer

    @property
    def base_url(self) -> str:
        return self.server.base_url

    @property
    def bodies(self) -> list[Mapping[str, Any]]:
        return [ask.body for ask in self.server.asked]


@contextmanager
def playing(*script: str | Completion | Behaviour) -> Iterator[Playing]:
    """A scripted model on loopback, in a thread of its own: for programs in other processes, too."""
    server, ready, over = ScriptedServer(script), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with server:
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield Playing(server)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()


def run(*arguments: object, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "quality.cases.cli", *map(str, arguments)]
    clean = {name: value for name, value in os.environ.items() if name not in ("QUALITY_LAB_TOKEN", "COLUMNS")}
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, env={**clean, "COLUMNS": "160", **(env or {})}
    )


def answered(report: Path) -> dict[str, Any]:
    """A JSON report, with its cases by id."""
    read = json.loads(report.read_text())
    return {**read, "cases": {case["id"]: case for case in read["cases"]}}


def verdicts(case: Mapping[str, Any]) -> list[str]:
    return [sample["verdict"] for sample in case["samples"]]


def lines_of(records: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(export(*records))
