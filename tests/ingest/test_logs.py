"""What is remembered of logs has a bound, whatever the requests repeat."""

import io
import json
import tracemalloc

import pytest

from quality.ingest import logs
from quality.ingest.files import TraceFile
from quality.ingest.items import Parsed

CHATS = 400
KILOBYTE = 1024


def pair(format_name: str, number: int, tools: list[dict[str, object]]) -> dict[str, object]:
    asked = [{"role": "user", "content": f"Question {number}"}]
    said = {"role": "assistant", "content": "Yes."}
    if format_name == "openai_responses":
        output = [{"type": "message", "id": f"m-{number}", **said}]
        return {"request": {"input": asked, "tools": tools}, "response": {"id": f"r-{number}", "output": output}}
    choices = [{"index": 0, "message": said}]
    return {"request": {"messages": asked, "tools": tools}, "response": {"id": f"r-{number}", "choices": choices}}


@pytest.mark.parametrize("format_name", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("are_equal", [True, False])
def test_tools_that_requests_repeat_are_not_held_for_each(
    monkeypatch: pytest.MonkeyPatch, format_name: str, are_equal: bool
) -> None:
    monkeypatch.setattr(logs, "MAX_HELD_BYTES", 100 * KILOBYTE)
    monkeypatch.setattr(logs, "MAX_TOOLS_BYTES", 500 * KILOBYTE)
    monkeypatch.setattr(logs, "_MAX_TOOLSETS", 10)
    items = (
        pair(format_name, n, [{"type": "function", "name": f"t{0 if are_equal else n}", "description": "d" * 20_000}])
        for n in range(CHATS)
    )
    file = io.BytesIO("\n".join(map(json.dumps, items)).encode())
    tracemalloc.start()
    try:
        found = sum(isinstance(item, Parsed) for item in TraceFile(file, max_bytes=1 << 30))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == CHATS
    assert peak < 5_000 * KILOBYTE < CHATS * 20_000
