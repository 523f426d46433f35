"""A large file costs no more memory than a small one: measured in processes of their own, whose peaks start afresh."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ingest.helpers import state
from tests.ingest.span_files import genai_chat, genai_tool, otlp

MEGABYTE = 1024 * 1024
SCRIPT = """
import sys, django
django.setup()
from django.core.management import call_command
call_command("import_traces", sys.argv[1], tenant="acme")
print("peak", next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def write(path: Path, size: int, shape: str) -> int:
    """A file of about `size` bytes; the number of its items."""
    count = written = 0
    with path.open("w") as file:
        file.write("[" if shape == "array" else "")
        while written < size:
            result = [{"id": f"ap-{count}-{n}", "at": "2026-05-12T09:00", "price": 12.5} for n in range(8)]
            record = {"external_id": f"run-{count}", "tool_name": "find", "args": {"n": count}, "result": result}
            if shape == "chats":
                call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": json.dumps({"n": count})}}
                record = {
                    "metadata": {"conversation_id": f"c-{count}"},
                    "messages": [
                        {"role": "user", "content": "?"},
                        {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": "a", "content": json.dumps(result)},
                    ],
                }
            between = "" if count == 0 else ",\n" if shape == "array" else "\n"
            written += file.write(between + json.dumps(record))
            count += 1
        file.write("]" if shape == "array" else "")
    return count


def peak_kib(path: Path, before: str = "") -> int:
    script = SCRIPT.replace("django.setup()", f"django.setup()\n{before}")
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout.split("peak")[1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from Linux's /proc")
@pytest.mark.parametrize("shape", ["lines", "array", "chats"])
def test_a_file_six_times_as_large_costs_no_more_memory(tenant, tmp_path, shape):
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    write(small, 2 * MEGABYTE, shape)
    count = write(large, 12 * MEGABYTE, shape)
    assert peak_kib(large) < peak_kib(small) * 1.25
    assert len(state(tenant)["calls"]) == count


def write_spans(path: Path, size: int, shape: str) -> int:
    """A file of spans, ten calls a trace, as one request or as one a line; the number of its calls."""
    count = written = 0
    with path.open("w") as file:
        file.write('{"resourceSpans": [{"scopeSpans": [{"spans": [' if shape == "request" else "")
        while written < size:
            trace = f"{count // 10 + 1:032x}"
            result = {"gen_ai.tool.call.result": json.dumps({"found": "x" * 400})}
            for span in (
                genai_chat(2 * count + 1, f"call_{count}", trace=trace),
                genai_tool(2 * count + 2, call_id=f"call_{count}", trace=trace, attributes=result),
            ):
                text = json.dumps(span if shape == "request" else otlp(span))
                written += file.write(("," if written and shape == "request" else "") + text + "\n")
            count += 1
        file.write("]}]}]}" if shape == "request" else "")
    return count


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from Linux's /proc")
@pytest.mark.parametrize("shape", ["request", "lines"])
def test_spans_are_held_up_to_the_bound_and_no_further(tenant, tmp_path, shape):
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    write_spans(small, 8 * MEGABYTE, shape)
    count = write_spans(large, 24 * MEGABYTE, shape)
    bound = "from quality.ingest import gathering; gathering.MAX_HELD_BYTES = 2 * 1024 * 1024"
    assert peak_kib(large, bound) < peak_kib(small, bound) * 1.25
    assert len(state(tenant)["calls"]) == count
