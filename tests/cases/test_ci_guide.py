"""What docs/ci.md shows is what the command takes."""

import argparse
import asyncio
import re
from pathlib import Path

import pytest
import yaml

from quality.cases.gate import Exit
from quality.cases.options import parser
from quality.cases.stubs import OnMiss
from tests.cases.suite import ROOT, made, playing, written

GUIDE = (ROOT / "docs" / "ci.md").read_text("utf-8")
NOT_TOLD = {"--help", "--token", "--quiet"}


def test_every_option_is_told_and_none_that_is_not_there() -> None:
    known = {name for action in parser("").__dict__["_actions"] for name in action.option_strings if name[:2] == "--"}
    told = {name for name in re.findall(r"--[a-z][a-z-]+", GUIDE) if not name.startswith("--qlab")}
    assert known - told <= NOT_TOLD
    assert told <= known


def test_every_policy_and_exit_code_is_told() -> None:
    for policy in OnMiss:
        assert f"`{policy}`" in GUIDE
    for code in Exit:
        assert f"| {int(code)} |" in GUIDE


def test_the_commands_are_read() -> None:
    text = re.search(r"```sh\npip install.*?```", GUIDE, re.DOTALL)
    assert text
    commands = re.findall(r"^quality-tool-regressions (.*)$", text[0].replace("\\\n", " "), re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        options = parser("").parse_args(command.partition("#")[0].split())
        assert isinstance(options, argparse.Namespace)


def test_the_file_for_gitlab_is_yaml() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    job = yaml.safe_load(text)["tool-regressions"]
    assert job["script"][1].startswith("quality-tool-regressions --api-base")
    assert job["artifacts"]["reports"] == {"junit": "reports/junit.xml"}


def test_the_script_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    names: dict[str, object] = {}
    exec(script, names)
    with playing() as play:
        asyncio.run(names["main"](written(tmp_path / "cases.jsonl", made(1)), play.base_url))  # type: ignore[operator]
    assert capsys.readouterr().out == "REG-1 3 of 3 passed\n"
