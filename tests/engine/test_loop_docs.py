"""What docs/engine.md shows works as it stands there."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from engine.limits import Limits
from engine.loop import Outcome
from engine.net import Policy
from engine.tools.definitions import read_definitions
from tests.engine.turns import playing

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.anyio
async def test_the_script_runs() -> None:
    [script] = blocks("python")
    async with playing() as play:
        script = script.replace("http://127.0.0.1:18100/v1", play.server.base_url)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT
        )
        out, err = await process.communicate()
    assert err.decode() == ""
    assert out.decode() == "answered [stand-in model] get_weather says: 21 degrees in Rome\n"


def test_the_definitions_are_valid() -> None:
    [tool] = read_definitions(json.loads(blocks("json")[0]), Policy.tenant())
    assert tool.name == "get_weather"


def test_every_outcome_is_explained() -> None:
    assert all(f"| `{outcome}` |" in DOCS for outcome in Outcome)


def test_the_limits_are_those_of_the_code() -> None:
    [written] = re.findall(r"`Limits\((.*?)\)`\.", DOCS, re.DOTALL)
    for part in " ".join(written.split()).split(", "):
        name, value = part.split("=", 1)
        default = getattr(Limits(), name)
        assert value.strip('"') in (str(default), f"{default:g}" if isinstance(default, float) else "", "Price()")
