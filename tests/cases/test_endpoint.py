"""`--endpoint`: the service replays, and the command follows it, calls it off, and brings the report home."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from quality.cases.junit import junit
from quality.cases.markdown import markdown
from quality.cases.options import NOT_ON_THE_SERVICE, parser
from quality.cases.server_replay import report_from
from quality.cases.sources import SourceError
from quality.models import Replay, ReplayState
from quality.replay.run import run_replay
from tenants import endpoints
from tenants.endpoints import EndpointData
from tenants.models import Role, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.cases.suite import ROOT, Playing, answered, look, made, playing, run, written
from tests.engine.loopback import Answer, serving
from tests.factories import CaseFactory
from tests.replay.test_judging import weather
from tests.service import Service as Live

PATIENCE_S = 120

type Apis = Callable[..., Api]


def eventually[T](look: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if (found := look()) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come about")


@pytest.fixture
def script() -> list[Any]:
    return [weather("Zürich"), weather("Zürich"), weather("Zürich"), weather("Bern")]


@pytest.fixture
def house(
    live_service: Live, tenant: Tenant, member: Any, settings: Any, script: list[Any]
) -> Iterator[tuple[Live, Playing]]:
    """The service with two cases and the endpoint `main`, which follows the script."""
    with playing(*script) as main:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [int(main.base_url.split(":")[2].split("/")[0])]
        data = EndpointData(label="main", base_url=main.base_url, model="m", price_prompt=1, price_completion=1)
        admin = member(Role.ADMIN).user
        with tenant_scope(tenant):
            CaseFactory(tags=["smoke"])
            CaseFactory()
            endpoints.save_endpoint(data, actor=admin)
        yield live_service, main


class Command:
    """The command in a process of its own."""

    def __init__(self, service: Live, api: Api, *arguments: object) -> None:
        command = [sys.executable, "-m", "quality.cases.cli", "--api-base", service.url, "--endpoint", "main"]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "COLUMNS": "160", "QUALITY_LAB_TOKEN": api.text},
        )  # fmt: skip

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


def queued(tenant: Tenant) -> int:
    """Waits for a replay, and gives its id."""

    def look() -> int | None:
        with tenant_scope(tenant):
            found: int | None = Replay.objects.filter(state=ReplayState.QUEUED).values_list("pk", flat=True).first()
            return found

    return eventually(look, "a replay")


@pytest.mark.slow
def test_the_service_replays_and_the_command_writes_what_it_always_writes(
    house: tuple[Live, Playing], tenant: Tenant, api: Apis, tmp_path: Path
) -> None:
    service, main = house
    files = {name: tmp_path / "out" / name for name in ("report.json", "junit.xml", "summary.md", "answers.jsonl")}
    command = Command(
        service, api("read", "replays:write", "export:read"), "--samples", 2, "--concurrency", 1,
        "--budget", "calls=50,cost=1",
        "--out-json", files["report.json"], "--out-junit", files["junit.xml"], "--out-md", files["summary.md"],
        "--out-answers", files["answers.jsonl"],
    )  # fmt: skip
    pk = queued(tenant)
    with tenant_scope(tenant):
        kept = Replay.objects.get(pk=pk)
        assert (kept.settings["samples"], kept.settings["budget"]["calls"], kept.settings["seed"]) == (2, 50, 1)
        assert kept.token_id is not None
    run_replay(pk, tenant_id=tenant.pk)
    code, out, err = command.ended()
    assert code == 1, out + err
    assert len(main.bodies) == 4
    assert f"Replay {pk} of 2 cases runs on {service.url}." in err
    assert "4 of 4 samples" in err
    assert "pass   REG-1  get_weather  2 of 2 passed, passing" in out
    assert "FAIL   REG-2  get_weather  1 of 2 passed, flaky" in out
    assert "Exit code 1." in out
    report = answered(files["report.json"])
    assert (report["exitCode"], report["source"]) == (1, f"replay {pk}")
    assert [each["index"] for each in report["cases"]["REG-1"]["samples"]] == [0, 1]
    assert '<testcase classname="get_weather" name="REG-2"' in files["junit.xml"].read_text()
    assert "REG\\-2" in files["summary.md"].read_text()
    assert len(files["answers.jsonl"].read_text().splitlines()) == 4


@pytest.mark.slow
def test_cases_are_chosen_and_the_estimate_starts_nothing(
    house: tuple[Live, Playing], tenant: Tenant, api: Apis
) -> None:
    service, _ = house
    client = api("read", "replays:write")
    code, out, err = Command(service, client, "--tag", "smoke", "--dry-run", "--samples", 3, "--two-sided").ended()
    assert code == 0, err
    told = json.loads(out)
    assert (told["cases"], told["samples"], [side["name"] for side in told["sides"]]) == (
        1, 6, ["baseline", "candidate"],
    )  # fmt: skip
    with tenant_scope(tenant):
        assert not Replay.objects.exists()
    for more, words in (
        (("--case", "REG-9"), "There is no case REG-9"),
        (("--tag", "none"), "No active case"),
        (("--judge-endpoint", "gone"), "There is no enabled model 'gone'"),
        (("--baseline-endpoint", "gone"), "There is no enabled model 'gone'"),
        (("--baseline-replay", 99), "There is no replay 99"),
    ):
        code, _, err = Command(service, client, *more).ended()
        assert (code, words in err) == (2, True), err
    code, _, err = Command(service, api("read")).ended()
    assert (code, "replays:write" in err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_calls_the_replay_off(
    house: tuple[Live, Playing], tenant: Tenant, api: Apis, how: signal.Signals
) -> None:
    command = Command(house[0], api("read", "replays:write"))
    pk = queued(tenant)
    assert command.process.stderr is not None
    assert f"Replay {pk} " in command.process.stderr.readline()
    command.process.send_signal(how)
    code, _, err = command.ended()
    assert (code, f"Replay {pk} is called off." in err) == (3, True), err
    with tenant_scope(tenant):
        assert Replay.objects.get(pk=pk).state == ReplayState.CANCELLED


# The service as a script: what is hard to bring about.

STARTED = {"id": 7, "numCases": 2, "numExpected": 40}


def standing(state: str, done: int = 0, stage: str = "samples", errors: int = 0, failure: str = "") -> Answer:
    body = {"id": 7, "state": state, "stage": stage, "numFinished": done, "numErrors": errors, "failure": failure}
    return Answer(body=json.dumps(body).encode())


def report(*records: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A report as the command writes it."""
    path = folder / "of-the-command.json"
    with playing(look("7713")) as play:
        file = written(folder / "cases.jsonl", *records)
        run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--out-json", path)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def followed(*answers: Answer) -> subprocess.CompletedProcess[str]:
    started = Answer(status=201, body=json.dumps(STARTED).encode())
    with serving(started, *answers) as server:
        return run(
            "--api-base", f"http://127.0.0.1:{server.port}", "--endpoint", "main",
            env={"QUALITY_LAB_TOKEN": "t0ken"},
        )  # fmt: skip


def test_progress_is_told_in_plain_lines_and_stages_by_name(tmp_path: Path) -> None:
    whole = report(made(1), folder=tmp_path)
    ran = followed(
        standing("queued"), standing("running", 4), standing("running", 5), standing("running", 12, errors=1),
        standing("paused", 12, errors=1), standing("running", 12, errors=1),
        standing("running", 40, "confirm", errors=1), standing("running", 60, "judge", errors=1),
        standing("done", 60, "judge", errors=1), Answer(body=json.dumps(whole).encode()),
    )  # fmt: skip
    assert ran.returncode == whole["exitCode"] == 1
    assert ran.stderr.splitlines()[1:] == [
        "4 of 40 samples",
        "12 of 40 samples, 1 errors",
        "Paused on the service.",
        "It goes on.",
        "40 of 40 samples, 1 errors",
        "Running suspects again with fresh samples.",
        "Asking the judge.",
    ]
    assert "FAIL   REG-1" in ran.stdout


def test_a_service_that_is_started_anew_is_waited_for(tmp_path: Path) -> None:
    whole = report(made(1), folder=tmp_path)
    away = Answer(status=502, body=b"")
    ran = followed(*[away] * 6, standing("done", 40), Answer(body=json.dumps(whole).encode()))
    assert ran.returncode == 1, ran.stderr


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        ([standing("failed", failure="The key of main cannot be read.")], 3, "The key of main cannot be read."),
        ([standing("cancelled")], 3, "was called off on the service"),
        ([standing("done"), Answer(body=b"{}")], 2, "did not answer with a report"),
        ([Answer(status=404)], 2, "404"),
        ([Answer(status=401)], 2, "QUALITY_LAB_TOKEN"),
        ([Answer(status=403), standing("cancelled")], 2, "Replay 7 is called off."),
    ],
)
def test_a_replay_without_a_verdict_says_where_it_is(answers: list[Answer], code: int, words: str) -> None:
    ran = followed(*answers)
    assert (ran.returncode, words in ran.stderr) == (code, True), ran.stderr


def test_a_report_that_was_fetched_is_written_as_the_service_wrote_it(tmp_path: Path) -> None:
    whole = report(made(1), made(2, status="archived"), folder=tmp_path)
    found = report_from(whole)
    assert json.loads(found.json()) == whole
    assert 'name="REG-1"' in junit(found)
    assert "REG\\-1" in markdown(found)
    with pytest.raises(SourceError):
        report_from({**whole, "report": "other"})


# What cannot work is refused.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--endpoint", "main", "--file", "x"), "add --api-base"),
        (("--api-base", "http://x", "--judge-endpoint", "judge"), "add --endpoint"),
        (("--api-base", "http://x", "--baseline-replay", "3"), "add --endpoint"),
        (
            ("--api-base", "http://x", "--endpoint", "m", "--base-url", "http://y", "--model", "z"),
            "--base-url, --model",
        ),
        (("--api-base", "http://x", "--endpoint", "m", "--status", "all"), "--status"),
        (("--api-base", "http://x", "--endpoint", "m", "--strict", "--quarantine", "REG-1"), "--strict, --quarantine"),
        (("--api-base", "http://x", "--endpoint", "m", "--on-miss", "live"), "--on-miss live"),
        (("--api-base", "http://x", "--endpoint", "m", "--tag", "a", "--tag", "b"), "once"),
        (("--api-base", "http://x", "--endpoint", "m", "--tag", "a", "--case", "REG-1"), "take one of them"),
        (("--api-base", "http://x", "--endpoint", "m", "--two-sided", "--baseline-replay", "1"), "two baselines"),
        (("--api-base", "http://x", "--endpoint", "m"), "read and replays:write"),
        (("--api-base", "http://x", "--endpoint", "m", "--budget", "calls=x", "--token", "t"), "is no budget"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(arguments: tuple[str, ...], words: str) -> None:
    ran = run(*arguments)
    assert (ran.returncode, words in ran.stderr) == (2, True), ran.stderr


def test_the_refused_options_are_there() -> None:
    known = vars(parser("").parse_args([]))
    assert set(NOT_ON_THE_SERVICE) <= set(known)
