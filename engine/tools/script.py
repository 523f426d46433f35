"""Script tools: a folder of Python files, each with `get_tools()` and `execute_tool(name, arguments) -> str | None`.

Each question to a file runs in a process of its own, which the timeout can kill together with all that it started. It
gets none of our environment, for that holds the service's secrets; what a script needs is handed in as `environment`.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import ToolError
from engine.schema import EMPTY, schema_fault
from engine.tools.base import Arguments, Mode, Safety, ToolContext, ToolOutcome, succeeded, told_in_json
from engine.tools.definitions import name_fault

LIST_TIMEOUT_S = 10.0
MAX_ANSWER = 1 << 20  # bytes
AT_ONCE = 4  # files that are asked for their tools side by side

_CHILD = Path(__file__).with_name("script_child.py")
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


class ScriptError(ToolError):
    """A file gave no answer. `code` is `timed_out`, `too_large` or `tool_failed`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class ScriptFault:
    """What is wrong with a file of the folder; its other tools, and other files, are not touched by it."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class ScriptTool:
    """`files` are asked in order, the one that named the tool first, until one does not answer None."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    files: tuple[Path, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    mode: Mode = Mode.AUTO
    safety: Safety = Safety.UNSAFE

    async def execute(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        question = {"name": self.name, "arguments": arguments}
        try:
            for file in self.files:
                result = await _ask(file, question, context.time_left_s(), self.environment)
                if result is not None:
                    return succeeded(result, context, details={"file": file.name})
        except ScriptError as exc:
            return told_in_json(str(exc), context, error=exc.code)
        return told_in_json(f"no script file runs {self.name}", context, error="tool_failed")


async def load_scripts(
    folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[list[ScriptTool], list[ScriptFault]]:
    """The tools of all files in `folder` (`*.py` without a leading `_`), and what is wrong with the others."""
    files = sorted(file for file in folder.glob("*.py") if not file.name.startswith("_"))
    tools: dict[str, ScriptTool] = {}
    faults: list[ScriptFault] = []
    slots = asyncio.Semaphore(AT_ONCE)
    answers = await asyncio.gather(*(_list(file, environment or {}, slots) for file in files))
    sound = [file for file, listed in zip(files, answers, strict=True) if not isinstance(listed, ScriptError)]
    for file, listed in zip(files, answers, strict=True):
        if isinstance(listed, ScriptError):
            faults.append(ScriptFault(file.name, str(listed)))
            continue
        for item in listed:
            function = item.get("function", item) if isinstance(item, dict) else {}
            if reason := _fault(function, tools):
                faults.append(ScriptFault(file.name, reason))
                continue
            tools[function["name"]] = ScriptTool(
                name=function["name"],
                description=function["description"],
                parameters=function.get("parameters", EMPTY),
                files=(file, *(other for other in sound if other != file)),
                environment=environment or {},
            )
    return list(tools.values()), faults


async def _list(file: Path, environment: Mapping[str, str], slots: asyncio.Semaphore) -> list[Any] | ScriptError:
    try:
        async with slots:
            listed = await _ask(file, {}, LIST_TIMEOUT_S, environment)
    except ScriptError as exc:
        return exc
    return listed if isinstance(listed, list) else ScriptError("tool_failed", "get_tools() returned no list")


def _fault(function: Any, taken: Mapping[str, ScriptTool]) -> str | None:
    if not isinstance(function, dict) or name_fault(function.get("name")):
        return "a tool needs a name of 1 to 64 letters, digits, - or _"
    name = function["name"]
    if name in taken:
        return f"tool {name!r} is taken by {taken[name].files[0].name}"
    if not isinstance(function.get("description"), str):
        return f"tool {name!r} needs a description"
    reason = schema_fault(function.get("parameters", EMPTY))
    return f"parameters of tool {name!r}: {reason}" if reason else None


async def _ask(file: Path, question: Mapping[str, Any], timeout_s: float, environment: Mapping[str, str]) -> Any:
    """The answer of one file to one question. Raises `ScriptError`; leaves no process behind."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        *("-X", "utf8"),
        str(_CHILD),
        str(file.resolve()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=file.resolve().parent,
        env={name: os.environ[name] for name in _PASSED_ON if name in os.environ} | dict(environment),
        start_new_session=True,
        limit=MAX_ANSWER,
    )
    try:
        async with asyncio.timeout(timeout_s):
            line = await _exchange(child, json.dumps(question).encode())
    except TimeoutError as exc:
        raise ScriptError("timed_out", f"{file.name} did not answer within {timeout_s:.3g} s and was stopped") from exc
    except asyncio.IncompleteReadError as exc:
        raise ScriptError("tool_failed", f"{file.name} ended without an answer") from exc
    except asyncio.LimitOverrunError as exc:
        raise ScriptError("too_large", f"the answer of {file.name} is larger than {MAX_ANSWER} bytes") from exc
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # its own children, too
        await child.wait()
    match _read(line):
        case {"value": value}:
            return value
        case {"error": str(message)}:
            raise ScriptError("tool_failed", message)
    raise ScriptError("tool_failed", f"{file.name} wrote something else into its answer")


def _read(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


async def _exchange(child: asyncio.subprocess.Process, question: bytes) -> bytes:
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(ConnectionError):  # a child that died at once is noticed by its missing answer
        child.stdin.write(question)
        await child.stdin.drain()
        child.stdin.close()
    return await child.stdout.readuntil(b"\n")
