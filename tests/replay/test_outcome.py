"""What came of a replay: the same as the command says of the same answers."""

import json
from pathlib import Path
from typing import Any

from quality.cases.attempt import Attempt
from quality.cases.results import results_of
from quality.models import CaseVersion, JudgeVote, Replay, ReplaySample
from quality.replay import outcome
from tenants.scope import tenant_scope
from tests.cases.suite import run as run_command
from tests.cases.test_record import export
from tests.replay.lab import Lab, Models

STEP = {"tool": "get_weather", "extra_args": "allow"}
JUDGED = {"rubric": "It says that the weather is fine.", "votes": 1}


def exported(lab: Lab, path: Path) -> Path:
    with tenant_scope(lab.tenant):
        versions = CaseVersion.objects.order_by("case__number").values_list("data", flat=True)
        path.write_bytes(b"".join(export(*map(json.loads, versions))))
    return path


def told(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What a report says of its cases, without where they stood in a file."""
    return [{name: value for name, value in case.items() if name != "line"} for case in report["cases"]]


def test_a_report_is_what_the_command_makes_of_the_same_answers(lab: Lab, tmp_path: Path) -> None:
    lab.endpoint("flaky")
    lab.cases(3)
    lab.cases(1, tags=["quarantine"])
    replay = lab.ran("flaky", samples=3)
    with tenant_scope(lab.tenant):
        report = json.loads(outcome.report_of(replay).json())
        lines = ReplaySample.objects.order_by("pk").values_list("data", flat=True)
        (tmp_path / "answers.jsonl").write_text("".join(f"{line}\n" for line in lines))
    cases, answers = exported(lab, tmp_path / "cases.jsonl"), tmp_path / "answers.jsonl"
    made = run_command("--file", cases, "--answers", answers, "--samples", 3, "--out-json", tmp_path / "report.json")
    assert made.returncode == replay.exit_code == report["exitCode"] == 1
    command = json.loads((tmp_path / "report.json").read_text())
    assert told(report) == told(command)
    for name in ("verdict", "reasons", "counts", "outcome"):
        assert report[name] == command[name]
    different = {"model", "baseUrl"}  # stored answers have no endpoint
    for name, value in command["summary"].items():
        assert name in different or report["summary"][name] == value, name
    assert replay.result["gate"]["red"] == ["REG-1", "REG-2", "REG-3"]
    assert replay.result["verdict"] == report["verdict"]


def test_a_comparison_is_kept_in_rows_and_told_in_full(lab: Lab) -> None:
    lab.endpoint("right")
    lab.endpoint("wrong")
    lab.cases(2)
    replay = lab.ran("right", "wrong", samples=2)
    assert "cases" not in replay.result["comparison"]
    assert replay.result["comparison"]["broken"] == 2
    assert set(replay.result["summaries"]) == {"baseline", "candidate"}
    with tenant_scope(lab.tenant):
        report = outcome.report_of(replay).as_dict()
        fresh = list(outcome.attempts_of(replay, "baseline", fresh=True))
        first = list(outcome.attempts_of(replay, "baseline"))
        cases = outcome.cases_of(replay)
    assert [case["confirmed"] for case in report["comparison"]["cases"]] == [True, True]
    assert [side["name"] for side in report["sides"]] == ["candidate", "baseline"]
    assert "Suspects run again with fresh samples: REG-1, REG-2." in report["notices"]
    assert (len(first), len(fresh), {type(each) for each in first}) == (4, 20, {Attempt})
    [one, two] = results_of(cases, first, expected={"REG-1": 2, "REG-2": 2})
    assert (one.counts, two.counts) == ((2, 2), (2, 2))


def test_nul_and_half_a_pair_in_what_a_model_wrote_can_be_kept(lab: Lab, models: Models) -> None:
    lab.endpoint("odd")
    lab.cases(1)
    replay = lab.ran("odd")
    [sample] = lab.samples(replay)
    assert sample.verdict == "fail"
    assert sample.reasons[0]["got"] == "Z\ufffdrich\ufffd"
    with tenant_scope(lab.tenant):
        [attempt] = outcome.attempts_of(replay, "candidate")
    [[call]] = attempt.sample.cycles
    assert json.loads(str(call.arguments))["city"][1] == "\0"


def test_a_key_that_a_server_says_back_is_not_kept(lab: Lab) -> None:
    lab.endpoint("parrot")
    lab.cases(1)
    replay = lab.ran("parrot")
    [sample] = lab.samples(replay)
    assert sample.reasons[0]["got"] == "{secret:MODEL_KEY}"
    with tenant_scope(lab.tenant):
        kept = [*ReplaySample.objects.values_list("data", "reasons"), outcome.report_of(replay).json()]
    assert "{secret:MODEL_KEY}" in str(kept)
    assert "sk-acme-4711" not in str(kept)


def test_meaning_is_judged_after_the_samples_are_there(lab: Lab, models: Models) -> None:
    expectation = {"version": 1, "calls": {"mode": "contains", "steps": [STEP]}}
    stubs = [{"tool": "get_weather", "result": {"sky": "clear"}}]
    lab.endpoint("right")
    lab.endpoint("judge")
    lab.cases(1, expectation=json.dumps({**expectation, "reply": {"judge": JUDGED}}), stubs=json.dumps(stubs))
    without = lab.ran("right", samples=2)
    assert (without.exit_code, without.num_errors) == (3, 2)
    replay = lab.ran("right", samples=2, judge_label="judge")
    assert [sample.verdict for sample in lab.samples(replay)] == ["pass", "pass"]
    assert (replay.exit_code, replay.num_errors, replay.num_finished) == (0, 0, 2)
    assert not any(sample.awaits_judge for sample in lab.samples(replay))
    with tenant_scope(lab.tenant):
        assert JudgeVote.objects.count() == 1
        assert Replay.objects.get(pk=replay.pk).stage == Replay.Stage.JUDGE
