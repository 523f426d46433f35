"""`quality-tool-regressions` as a shell runs it, against a real model server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quality.cases.report import KIND
from tests.cases.samples import calls
from tests.cases.suite import ROOT, TOOLS, answered, asked, look, made, playing, right, run, say, verdicts, written

SENT = {"reply": {"must": [{"contains": "sent"}]}}


def test_valid_cases_pass(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2, status="archived"))
    ran = run("--file", file)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "pass   REG-1  get_order  valid" in ran.stdout
    assert "skip   REG-2  get_order  archived" in ran.stdout
    assert "All cases are valid. 1 passed, 1 skipped. Exit code 0." in ran.stdout
    ran = run("--file", file, "--include-archived")
    assert "2 passed" in ran.stdout


def test_every_fault_names_line_case_tool_path_and_reason(tmp_path: Path) -> None:
    wrong = {"behavior": "x", "expectation": calls("first", "get_ordr")}
    file = written(
        tmp_path / "cases.jsonl", made(1), made(2, expected=wrong), made(3, toolName=None), made(4, label="bad")
    )
    ran = run("--file", file, "--out-json", tmp_path / "report.json")
    assert ran.returncode == 1
    for words in (
        "line 2, REG-2, get_order, /expected/expectation/calls/steps/0/tool: ",
        "line 3, REG-3, /toolName: ",
        "line 4, REG-4, get_order, /label: ",
    ):
        assert words in ran.stdout
    report = answered(tmp_path / "report.json")
    assert report["cases"]["REG-2"]["faults"][0]["line"] == 2
    assert (report["outcome"], report["counts"]["failed"]) == ("failed", 3)


def test_a_cut_file_is_bad_input(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2))
    lines = file.read_bytes().splitlines(keepends=True)
    for cut, words in (
        (lines[:2], "no end of the export after 2 records"),
        ([lines[0], lines[2]], "says 2 records, and 1 are here"),
        ([lines[0], lines[0].replace(b"REG-1", b"REG-9"), lines[2]], "checksum"),
    ):
        file.write_bytes(b"".join(cut))
        ran = run("--file", file)
        assert ran.returncode == 2
        assert words in ran.stdout
    file.write_bytes(lines[0])
    by_hand = run("--file", file, "--no-trailer")
    assert by_hand.returncode == 0
    assert "may be cut" not in by_hand.stdout


@pytest.mark.parametrize("arguments", ["", "--replay --dry-run --base-url http://127.0.0.1:9/v1 --model m"])
def test_a_reader_that_has_seen_enough_is_no_fault(tmp_path: Path, arguments: str) -> None:
    file = written(tmp_path / "cases.jsonl", *(made(number) for number in range(1, 400)))
    command = f"{sys.executable} -m quality.cases.cli --file {file} {arguments} | head -n 2; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert (ran.stderr, ran.stdout.splitlines()[-1]) == ("", "0")
    assert len(ran.stdout.splitlines()) == 3


def test_a_case_that_is_there_twice_is_a_fault(tmp_path: Path) -> None:
    ran = run("--file", written(tmp_path / "cases.jsonl", made(1), made(1)))
    assert ran.returncode == 1
    assert "line 2, REG-1, get_order, /id: REG-1 is there already, in line 1" in ran.stdout


def test_tools_that_are_not_supported_fail_or_are_skipped(tmp_path: Path) -> None:
    other = made(2, toolName="cancel_order", expected={"behavior": "x", "expectation": calls("first", "cancel_order")})
    file = written(tmp_path / "cases.jsonl", made(1), other)
    ran = run("--file", file, "--tools", "get_order,other")
    assert ran.returncode == 1
    assert "line 2, REG-2, cancel_order, /toolName: the tool cancel_order is not supported" in ran.stdout
    ran = run("--file", file, "--tools", "get.order", "--skip-unsupported")
    assert ran.returncode == 0
    assert "skip   REG-2" in ran.stdout


def test_cases_are_chosen_by_id_and_tag(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2, tags=["smoke"]), made(3))
    assert "1 passed" in run("--file", file, "--tag", "smoke").stdout
    assert "2 passed" in run("--file", file, "--case", "REG-1", "--case", "REG-3").stdout
    ran = run("--file", file, "--case", "REG-9")
    assert (ran.returncode, "There is no case REG-9." in ran.stdout) == (2, True)


def test_a_replay_passes_fails_and_tells_what_differs(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2, right("exact", **SENT)))
    report = tmp_path / "out" / "report.json"
    with playing() as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "choose", "--samples", 3,
                  "--out-json", report, "--parameters", '{"top_p": 1}')  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 of 3 passed, passing" in ran.stdout
    assert ran.stderr.endswith("6 of 6 samples\n")
    read = answered(report)
    assert (read["report"], read["mode"], read["exitCode"]) == (KIND, "replay", 0)
    assert verdicts(read["cases"]["REG-2"]) == ["pass"] * 3
    assert read["cases"]["REG-2"]["served"] == {"exact": 3}
    assert read["cases"]["REG-1"]["interval"] == pytest.approx([0.4385, 1.0], abs=1e-4)
    with playing(look("7713"), look("7713"), look(note="x"), look()) as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--concurrency", 1,
                  "--out-json", report, "--case", "REG-1", "--samples", 4)  # fmt: skip
    assert ran.returncode == 1
    assert "FAIL   REG-1  get_order  1 of 4 passed, flaky" in ran.stdout
    assert "2 of 4: get_order was called with order_number 7713; expected 7731." in ran.stdout
    assert "1 of 4: get_order was called with note x; no note is expected." in ran.stdout
    samples = answered(report)["cases"]["REG-1"]["samples"]
    assert samples[0]["difference"] == [
        {"tool": "get_order", "path": "/order_number", "place": "order_number", "expected": "7731", "got": "7713"}
    ]


def test_samples_that_are_missing_make_a_run_incomplete(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2))
    report = tmp_path / "report.json"
    with playing() as play:
        command = ["--file", file, "--replay", "--base-url", play.base_url, "--model", "choose", "--concurrency", 1]
        ran = run(*command, "--budget", "calls=3", "--samples", 2, "--out-json", report)
        assert len(play.bodies) == 3
    assert ran.returncode == 3
    assert "REG-2 could not be decided" in ran.stdout
    read = answered(report)
    assert (read["cases"]["REG-1"]["outcome"], read["cases"]["REG-2"]["outcome"]) == ("passed", "error")
    assert read["cases"]["REG-2"]["samples"][1]["error"].startswith("budget: 3 of 3 calls")
    with playing() as play:
        ran = run(*command[:4], "http://127.0.0.1:1/v1", *command[5:], "--samples", 1, "--case", "REG-1")
    assert ran.returncode == 3
    assert "cannot be reached" in ran.stdout


def test_a_failure_that_nothing_can_mend_is_a_failure_even_so(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1))
    with playing(look("7713"), "status:400") as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--samples", 2)
    assert ran.returncode == 1
    majority = written(tmp_path / "cases.jsonl", made(1, right(verdict={"need": "majority"})))
    with playing(look(), look(), "status:400") as play:
        ran = run("--file", majority, "--replay", "--base-url", play.base_url, "--model", "m", "--samples", 3)
    assert ran.returncode == 0, ran.stdout


def test_nothing_is_replayed_where_a_case_is_faulty(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2, label="bad"))
    with playing() as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "choose")
        assert play.bodies == []
    assert ran.returncode == 2
    assert "Nothing was replayed" in ran.stdout


def test_a_dry_run_shows_what_would_be_sent_and_sends_nothing(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1), made(2, input={**asked(), "messages": None}))
    prompt, tools = tmp_path / "prompt.txt", tmp_path / "tools.json"
    prompt.write_text("Be brief.")
    tools.write_text(json.dumps(TOOLS[:1]))
    with playing() as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--dry-run", "--samples", 5,
                  "--system-prompt", prompt, "--toolset", tools, "--temperature", 0.5)  # fmt: skip
        assert play.bodies == []
    assert ran.returncode == 0
    first, second = map(json.loads, ran.stdout.splitlines())
    assert (first["case"], first["samples"], first["body"]["temperature"]) == ("REG-1", 5, 0.5)
    assert first["body"]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert [tool["function"]["name"] for tool in first["body"]["tools"]] == ["get_order"]
    assert second["error"] == "it cannot be replayed: it has no messages"


def test_stored_answers_are_judged_again_without_a_model(tmp_path: Path) -> None:
    file, answers = written(tmp_path / "cases.jsonl", made(1), made(2)), tmp_path / "replies.jsonl"
    with playing(*[look("7713")] * 4) as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--samples", 2,
                  "--out-answers", answers)  # fmt: skip
    assert ran.returncode == 1
    assert len(answers.read_text().splitlines()) == 4
    lenient = calls("first", {"tool": "get_order", "args": {"order_number": {"regex": "77.*"}}})
    changed = made(2, expected={"behavior": "x", "expectation": lenient}, version=2)
    file = written(tmp_path / "changed.jsonl", made(1), changed, made(3))
    ran = run("--file", file, "--answers", answers, "--out-json", tmp_path / "report.json")
    assert ran.returncode == 1
    read = answered(tmp_path / "report.json")
    assert {name: case["outcome"] for name, case in read["cases"].items()} == {
        "REG-1": "failed", "REG-2": "passed", "REG-3": "error",
    }  # fmt: skip
    assert any("earlier versions of REG-2" in notice for notice in read["notices"])


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    file, answers = written(tmp_path / "cases.jsonl", made(1), made(2)), tmp_path / "replies.jsonl"
    with playing() as play:
        command = ["--file", file, "--replay", "--base-url", play.base_url, "--model", "choose", "--samples", 3,
                   "--concurrency", 1, "--out-answers", answers, "--resume"]  # fmt: skip
        assert run(*command, "--budget", "calls=4").returncode == 3
        answers.write_bytes(answers.read_bytes().rstrip(b"\n")[:-10])  # as kill -9 leaves it, in the middle of a line
        ran = run(*command)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert len(play.bodies) == 6
        assert "not asked for again: 4 samples" in ran.stdout
        assert len(answers.read_text().splitlines()) == 6
        run(*command, "--temperature", 1)
        assert len(play.bodies) == 12  # other requests


def replay_to(file: Path, report: Path, *script: Any, samples: int, more: tuple[Any, ...] = ()) -> Any:
    with playing(*script) as play:
        return run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--samples", samples,
                   "--concurrency", 1, "--out-json", report, *more)  # fmt: skip


def test_a_baseline_shows_what_got_worse_and_what_is_more_than_chance(tmp_path: Path) -> None:
    file, before, after = written(tmp_path / "cases.jsonl", made(1), made(2)), tmp_path / "a.json", tmp_path / "b.json"
    replay_to(file, before, *[look(), look("1")] * 5, samples=5)
    baseline = ("--baseline", before)
    ran = replay_to(file, after, *[look(), look("1")] * 5, samples=5, more=baseline)
    assert ran.returncode == 0, ran.stdout
    assert "No regression shown." in ran.stdout
    assert "2 cases are too few for a suite-level statement" in ran.stdout
    assert answered(after)["cases"]["REG-2"]["outcome"] == "skipped"  # fails as before: no regression, no pass
    ran = replay_to(file, after, *[look("1"), look("1")] * 5, samples=5, more=baseline)
    assert ran.returncode == 1
    assert "REG-1: newly failing, and more than chance." in ran.stdout
    [worse] = [each for each in answered(after)["comparison"]["cases"] if each["suspect"]]
    assert (worse["case"], worse["change"], worse["confirmed"]) == ("REG-1", "newly_failing", True)
    assert worse["p"] == pytest.approx(1 / 252)
    script = [look("1"), look("1"), *[look(), look("1")] * 4]
    assert replay_to(file, after, *script, samples=5, more=baseline).returncode == 0
    ran = replay_to(file, after, *script, samples=5, more=(*baseline, "--strict"))
    assert (ran.returncode, "REG-1 got worse." in ran.stdout) == (1, True)


def test_a_baseline_names_cases_that_cannot_be_compared(tmp_path: Path) -> None:
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    replay_to(written(tmp_path / "c.jsonl", made(1), made(2)), before, look(), look(), samples=1)
    file = written(tmp_path / "c.jsonl", made(1, version=2), made(3))
    ran = replay_to(file, after, look(), look(), samples=1, more=("--baseline", before))
    notes = {each["case"]: each["note"] for each in answered(after)["comparison"]["cases"]}
    assert notes == {
        "REG-1": "It was changed: version 1 in the baseline, 2 now.",
        "REG-3": "It is not in the baseline.",
        "REG-2": "It is not in this run.",
    }
    assert "Not in this run, though in the baseline: REG-2." in ran.stdout
    (tmp_path / "x.json").write_text('{"report": "other"}')
    assert replay_to(file, after, samples=1, more=("--baseline", tmp_path / "x.json")).returncode == 2
    run("--file", file, "--out-json", before)
    assert replay_to(file, after, samples=1, more=("--baseline", before)).returncode == 2


def test_two_sides_in_one_run_and_suspects_again_with_fresh_samples(tmp_path: Path) -> None:
    file, report = written(tmp_path / "cases.jsonl", made(1), made(2)), tmp_path / "report.json"
    with playing() as play:
        command = ["--file", file, "--replay", "--base-url", play.base_url, "--two-sided", "--samples", 2]
        ran = run(*command, "--model", "plain_text", "--baseline-model", "choose", "--out-json", report)
        num_bodies = len(play.bodies)
    assert ran.returncode == 1, ran.stdout
    assert num_bodies == 2 * 2 * 2 + 2 * 2 * 10  # the first stage, then ten fresh samples of two suspects on both sides
    read = answered(report)
    assert [each["fresh"] for each in read["comparison"]["cases"]] == [[[10, 10], [0, 10]]] * 2
    assert read["cases"]["REG-1"]["baseline"]["passes"] == 2
    assert {side["name"]: side["rate"] for side in read["sides"]} == {"candidate": 0.0, "baseline": 1.0}


def test_must_and_quarantine_are_tags(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1, tags=["must"]), made(2, tags=["quarantine"]), made(3))
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    ran = replay_to(file, before, look(), look("1"), look(), samples=1)
    assert (ran.returncode, answered(before)["cases"]["REG-2"]["outcome"]) == (0, "skipped")
    ran = replay_to(file, after, look("1"), look(), look("1"), samples=1, more=("--baseline", before))
    assert ran.returncode == 1
    assert "REG-1 must pass, and failed." in ran.stdout
    ran = replay_to(file, after, look("1"), look(), look("1"), samples=1, more=("--quarantine", "REG-1,REG-3"))
    assert ran.returncode == 0


def test_drifted_results_are_told(tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1, {"version": 1, **SENT}))
    with playing(look("1"), say("sent")) as play:
        ran = run("--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--on-miss", "fifo")
    assert ran.returncode == 0
    assert "Passed on results that were recorded for other calls: REG-1." in ran.stdout


def test_the_key_comes_from_a_variable_that_is_named(tmp_path: Path) -> None:
    file, report = written(tmp_path / "cases.jsonl", made(1)), tmp_path / "report.json"
    answers = tmp_path / "replies.jsonl"
    with playing() as play:
        command = ["--file", file, "--replay", "--base-url", play.base_url, "--model", "echoed_key"]
        ran = run(
            *command, "--api-key-env", "KEY", "--out-json", report, "--out-answers", answers, env={"KEY": "canary-7"}
        )
        assert play.server.asked[0].headers["authorization"] == "Bearer canary-7"
        assert run(*command, "--api-key-env", "NO_KEY").returncode == 2
    assert ran.returncode in (1, 3)
    for text in (ran.stdout, ran.stderr, report.read_text(), answers.read_text()):
        assert "canary-7" not in text


def test_live_tools_need_a_file_a_list_and_tools_that_are_safe(tmp_path: Path) -> None:
    from tests.engine.loopback import Answer, serving

    file = written(tmp_path / "cases.jsonl", made(1, {"version": 1, **SENT}))
    with serving(Answer(body=b'{"status": "sent"}')) as orders:
        url = f"http://127.0.0.1:{orders.port}/orders/{{order_number}}"
        tools = [
            {"name": "get_order", "description": "Gets.", "url": url, "method": "GET"},
            {"name": "cancel_order", "description": "Cancels.", "url": url, "method": "DELETE"},
        ]
        live = tmp_path / "live.json"
        live.write_text(json.dumps(tools))
        with playing(look("1"), say("sent")) as play:
            command = ["--file", file, "--replay", "--base-url", play.base_url, "--model", "m", "--on-miss", "live"]
            assert run(*command).returncode == 2
            assert run(*command, "--live", live).returncode == 2
            assert run(*command, "--live", live, "--live-tools", "cancel_order").returncode == 2
            assert orders.seen == []
            ran = run(*command, "--live", live, "--live-tools", "get_order")
        assert ran.returncode == 0, ran.stdout
        assert [seen.target for seen in orders.seen] == ["/orders/1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Name the cases"),
        (["--file", "none.jsonl"], "cannot be read"),
        (["--file", "x", "--api-base", "http://127.0.0.1:1"], "Name the cases"),
        (["--api-base", "http://127.0.0.1:1"], "QUALITY_LAB_TOKEN"),
        (["--file", "x", "--replay"], "needs --base-url and --model"),
        (["--file", "x", "--style", "a"], "add --api-base"),
        (["--file", "x", "--two-sided"], "add --replay"),
        (["--file", "x", "--baseline", "y"], "add --replay or --answers"),
        (["--file", "x", "--samples", "0"], "--samples"),
        (["--file", "x", "--unknown"], "unrecognized"),
    ],
)
def test_bad_options_are_told(arguments: list[str], words: str, tmp_path: Path) -> None:
    ran = run(*arguments)
    assert ran.returncode == 2
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "more",
    [
        ["--budget", "calls=many"],
        ["--budget", "cost=1"],
        ["--base-url", "nonsense"],
        ["--system-prompt", "none.txt"],
        ["--toolset", "none.json"],
        ["--out-answers", "/proc/none/x"],
    ],
)
def test_bad_values_are_told(more: list[str], tmp_path: Path) -> None:
    file = written(tmp_path / "cases.jsonl", made(1))
    ran = run("--file", file, "--replay", "--base-url", "http://127.0.0.1:1/v1", "--model", "m", *more)
    assert ran.returncode == 2, ran.stdout
    assert ran.stderr.startswith("quality-tool-regressions: ")
    assert "Traceback" not in ran.stderr
