"""Script tools: real files, real processes."""

import asyncio
import json
import os
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from engine.tools import Registry, ToolContext, ToolOutcome
from engine.tools.script import ScriptFault, ScriptTool, load_scripts

GREETER = """
    print("loading")
    def get_tools():
        return [{"type": "function", "function": {"name": "greet", "description": "Greets.", "parameters": {
            "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}]
    def execute_tool(name, arguments):
        if name != "greet":
            return None
        print("noise")
        return f"Hello {arguments['name']}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, source in files.items():
        (folder / f"{name}.py").write_text(dedent(source), "utf-8")


def load(folder: Path, **environment: str) -> tuple[list[ScriptTool], list[ScriptFault]]:
    return asyncio.run(load_scripts(folder, environment))


def run(folder: Path, name: str, arguments: dict[str, Any] | None = None, *, timeout_s: float = 10) -> ToolOutcome:
    tools, _ = load(folder)
    context = ToolContext(deadline=time.monotonic() + timeout_s)
    return asyncio.run(Registry(tools).run(name, arguments or {}, context))


def one_tool(body: str) -> str:
    """A file with one tool, `t`, whose body is `body`."""
    lines = "\n".join(f"    {line}" for line in dedent(body).strip().splitlines())
    listing = 'def get_tools():\n    return [{"name": "t", "description": "d"}]\n'
    return f"{listing}def execute_tool(name, arguments):\n{lines}\n"


def test_a_file_gives_its_tools_and_runs_them(folder: Path) -> None:
    write(folder, greeter=GREETER)
    tools, faults = load(folder)

    assert faults == []
    assert [(tool.name, tool.description, tool.parameters["required"]) for tool in tools] == [
        ("greet", "Greets.", ["name"])
    ]
    assert run(folder, "greet", {"name": "Zoë \ud83d\ude00"}).text == "Hello Zoë \U0001f600"


def test_a_folder_that_is_not_there_has_no_tools(folder: Path) -> None:
    assert load(folder / "missing") == ([], [])


def test_a_broken_file_is_reported_and_the_others_work(folder: Path) -> None:
    write(
        folder,
        a_syntax="def get_tools(:",
        b_import="import no_such_module",
        c_empty="",
        d_exit="import os; os._exit(3)",
        e_list="def get_tools(): return {}",
        f_json="def get_tools(): return [object()]",
        greeter=GREETER,
        _helper="raise RuntimeError",
    )
    tools, faults = load(folder)

    assert [tool.name for tool in tools] == ["greet"]
    assert {fault.file for fault in faults} == {
        f"{name}.py" for name in ("a_syntax", "b_import", "c_empty", "d_exit", "e_list", "f_json")
    }
    reasons = {fault.file: fault.reason for fault in faults}
    assert "SyntaxError" in reasons["a_syntax.py"]
    assert "no_such_module" in reasons["b_import.py"]
    assert "get_tools" in reasons["c_empty.py"]
    assert "without an answer" in reasons["d_exit.py"]
    assert run(folder, "greet", {"name": "Ana"}).text == "Hello Ana"


def test_bad_entries_and_taken_names_are_reported_and_the_rest_is_kept(folder: Path) -> None:
    write(
        folder,
        a=GREETER,
        b="""
            def get_tools():
                return [
                    {"name": "greet", "description": "Mine."}, {"name": "a b", "description": "x"}, 5,
                    {"name": "nodesc"}, {"name": "bad", "description": "x", "parameters": {"type": "list"}},
                    {"name": "fine", "description": "x"},
                ]
            def execute_tool(name, arguments):
                return name
        """,
    )
    tools, faults = load(folder)

    assert [tool.name for tool in tools] == ["greet", "fine"]
    assert len(faults) == 5
    assert "taken by a.py" in faults[0].reason
    assert run(folder, "fine").text == "fine"


def test_the_next_file_is_asked_when_one_says_not_mine(folder: Path) -> None:
    write(
        folder,
        a=one_tool("return None"),
        b='def get_tools(): return []\ndef execute_tool(name, arguments): return "from b"',
    )

    assert run(folder, "t").text == "from b"
    (folder / "b.py").unlink()
    assert json.loads(run(folder, "t").text) == {"error": "no script file runs t"}


def test_a_failing_call_is_told_in_json(folder: Path) -> None:
    write(folder, a=one_tool("raise ValueError('no slot')"))
    assert run(folder, "t").text == '{"error": "ValueError: no slot"}'
    write(folder, a=one_tool("return 5"))
    assert "returned int" in run(folder, "t").text
    write(folder, a=one_tool("import sys; sys.exit('gone')"))
    assert run(folder, "t").text == '{"error": "SystemExit: gone"}'
    write(folder, a=one_tool("import os; os.kill(os.getpid(), 11)"))
    assert run(folder, "t").text == '{"error": "a.py ended without an answer"}'
    write(folder, a=one_tool("return 'x' * 2_000_000"))
    assert run(folder, "t").error == "too_large"


def _is_gone(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return True
        time.sleep(0.02)
    return False


SLEEPER = """
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open("pids", "w").write(f"{os.getpid()} {child.pid}")
    time.sleep(60)
"""


def test_the_timeout_kills_a_call_with_all_that_it_started(folder: Path) -> None:
    write(folder, a=one_tool(SLEEPER))
    started = time.monotonic()
    outcome = run(folder, "t", timeout_s=1.5)

    assert outcome.error == "timed_out"
    assert time.monotonic() - started < 5
    assert all(_is_gone(int(pid)) for pid in (folder / "pids").read_text().split())


def test_cancelling_kills_a_call_as_well(folder: Path) -> None:
    write(folder, a=one_tool(SLEEPER))
    tools, _ = load(folder)

    async def scene() -> None:
        task = asyncio.create_task(Registry(tools).run("t", {}, ToolContext()))
        while not (folder / "pids").exists() or not (folder / "pids").read_text():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert all(_is_gone(int(pid)) for pid in (folder / "pids").read_text().split())


def test_what_a_call_started_does_not_outlive_its_answer(folder: Path) -> None:
    write(folder, a=one_tool(dedent(SLEEPER).strip().removesuffix("time.sleep(60)") + "return 'done'"))

    assert run(folder, "t").text == "done"
    assert _is_gone(int((folder / "pids").read_text().split()[1]))


def test_a_script_sees_what_it_is_given_and_none_of_the_services_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "canary")
    write(folder, a=one_tool("import json, os\nreturn json.dumps(dict(os.environ))"))
    tools, _ = load(folder, SHOP_TOKEN="given")
    outcome = asyncio.run(Registry(tools).run("t", {}, ToolContext(result_limit=100_000)))
    environment = json.loads(outcome.text)

    assert "canary" not in outcome.text
    assert environment["SHOP_TOKEN"] == "given"
    assert "PATH" in environment
    assert "given" not in repr(tools)


def test_a_file_may_use_helpers_beside_it(folder: Path) -> None:
    write(folder, _prices="PRICE = 7", a="import _prices\n" + one_tool("return str(_prices.PRICE)"))

    assert run(folder, "t").text == "7"


def test_a_file_called_like_a_module_of_python_still_loads(folder: Path) -> None:
    write(folder, json=one_tool("return 'mine'"))

    assert run(folder, "t").text == "mine"
