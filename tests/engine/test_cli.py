"""The command line, run as a person or a script runs it: in a process of its own."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.providers.behaviours import TEXT
from tests.engine.loopback import Answer, serving
from tests.engine.turns import Playing, calls, playing

pytestmark = pytest.mark.anyio


def definition(port: int = 80, **changes: Any) -> dict[str, Any]:
    return {
        "name": "get_weather",
        "description": "Current weather in a city.",
        "url": f"http://127.0.0.1:{port}/weather/{{city}}",
        "method": "GET",
        "headers": {"X-Api-Key": "{secret:WEATHER}"},
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        **changes,
    }


async def chat(play: Playing, *arguments: str, **environment: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "engine.cli", "chat", "--base-url", play.server.base_url, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_turn_prints_its_events_as_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    with serving(Answer(body=b'{"degrees": 21}')) as weather:
        file.write_text(json.dumps([definition(weather.port)]))
        async with playing() as play:
            code, out, err = await chat(
                *(play, "--model", "one_call,plain_text", "--tools", str(file), "--secret", "WEATHER"),
                *("--key-env", "MODEL_KEY", "--system", "Be brief.", "--temperature", "0", "Weather in Rome?"),
                WEATHER="canary-weather",
                MODEL_KEY="canary-model",
            )
            assert (code, err) == (0, "")
            events = [json.loads(line) for line in out.splitlines()]
            assert events[-1]["content"] == TEXT
            assert events[-1]["type"] == "assistant_end"
            states = [event["state"] for event in events if event["type"] == "tool_call"]
            assert states[-2:] == ["running", "result"]
            assert [message["content"] for message in play.bodies[0]["messages"]] == ["Be brief.", "Weather in Rome?"]
            assert play.bodies[0]["temperature"] == 0
            assert play.server.asked[0].headers["authorization"] == "Bearer canary-model"
        [request] = weather.seen
        assert (request.target, request.header("x-api-key")) == ("/weather/Rome", "canary-weather")
        assert "canary" not in out


async def test_people_get_text_with_what_hides_in_it_made_visible(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    with serving(Answer(body=b"\x1b[31mred")) as weather:
        file.write_text(json.dumps([definition(weather.port, headers={})]))
        async with playing() as play:
            code, out, _ = await chat(
                play, "--human", "--model", "one_call,plain_text", "--tools", str(file), "Weather in Rome?"
            )
    assert code == 0
    assert '→ get_weather {"city": "Rome"}\n← get_weather: ⟨ESC⟩[31mred\n' in out
    assert out.endswith(f"{TEXT}\n")


async def test_script_tools_are_offered_and_a_broken_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        "def get_tools():\n"
        "    return [{'type': 'function', 'function': {'name': 'shout', 'description': 'Shouts.',\n"
        "            'parameters': {'type': 'object', 'properties': {}}}}]\n"
        "def execute_tool(name, arguments):\n"
        "    return 'HEY'\n"
    )
    (tmp_path / "bad.py").write_text("this is no Python\n")
    async with playing(calls(("shout", "{}")), "plain_text") as play:
        code, out, err = await chat(play, "--model", "m", "--scripts", str(tmp_path), "Shout!")
    assert code == 0
    assert '"result": "HEY"' in out
    assert "bad.py gives no tool" in err


async def test_a_turn_that_is_not_answered_exits_with_one() -> None:
    async with playing() as play:
        code, out, _ = await chat(play, "--model", "html", "Hello")
    assert code == 1
    assert json.loads(out.splitlines()[-1])["endReason"] == "provider_error"


async def test_a_call_that_needs_approval_ends_a_turn_that_nobody_watches(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([definition(mode="approve", headers={})]))
    async with playing() as play:
        code, out, _ = await chat(play, "--model", "one_call", "--tools", str(file), "Weather in Rome?")
    assert code == 1
    assert json.loads(out.splitlines()[-1])["endReason"] == "awaiting"


async def test_what_is_missing_is_named_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["chat", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "Hello"]
    for extra, words in [
        (["--tools", str(tmp_path / "none.json")], "none.json cannot be read"),
        (["--secret", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE is not set"),
        (["--key-env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE is not set"),
    ]:
        assert await asyncio.to_thread(main, [*base, *extra]) == 2
        assert words in capsys.readouterr().err


async def test_check_lists_what_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([definition(url="https://api.example.com/{city}")]))
    assert main(["tools", "check", str(file)]) == 0
    assert (
        capsys.readouterr().out == "get_weather  GET https://api.example.com/{city}  auto, safe\n1 valid definition\n"
    )


async def test_check_names_every_fault_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([definition(), {"name": "a b", "description": "", "url": "https://x.example.com"}]))
    assert main(["tools", "check", str(file)]) == 1
    out = capsys.readouterr().out
    for place in ("[0].url: ", "[1].name: ", "[1].description: "):
        assert place in out
    assert main(["tools", "check", "--local", str(file)]) == 1
    assert "[0].url" not in capsys.readouterr().out
    assert main(["tools", "check", str(tmp_path / "none.json")]) == 2
