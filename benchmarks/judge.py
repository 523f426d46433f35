"""How fast cases and stored replies are read, replies judged again, and the whole command run with all its reports.

    python -m benchmarks.judge [10000] [--rounds 5]

The cases are of five kinds (a first reply, an order of calls, arguments of many matchers, a reply, nothing but limits);
ten replies each with two calls, half of them right. No two are alike, but for one figure, where each case has one right
and one wrong reply five times: what is alike is judged once. All is one process and its processor time, so the figures
are those of one core, and other programs on the machine slow them little. The yardstick is `json.loads` of the same
lines.
"""

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import figure
from quality.cases.attempt import Attempt, read_attempts
from quality.cases.cli import main as command
from quality.cases.record import Case, read_cases
from quality.cases.results import results_of
from quality.cases.sample import Call, Ending, Sample, Served
from tests.cases.samples import calls
from tests.cases.suite import expected, made, written

SAMPLES = 10
YARDSTICK = "json.loads of the same lines"
WANTED = {"tool": "get_order", "args": {"order_number": {"regex": "77[0-9]+"}, "note": {"ignore": True}}}
TWO = {"tool": "cancel_order", "args": {"order_number": {"one_of": ["7731", "7732"]}}}
KINDS: list[dict[str, Any]] = [
    calls("first", WANTED),
    calls("exact", WANTED, TWO),
    calls("any_order", {"tool": "get_order", "args": {"order_number": {"all": [{"text": {"of": "7731"}}]}}}, TWO),
    {"version": 1, "reply": {"must": [{"contains": "sent"}, {"number": {"of": 7731}}]}},
    {"version": 1, "forbid": [{"tool": "refund_*"}], "limits": {"max_calls": 3, "max_cycles": 3}},
]


def attempt(case: Case, index: int, *, alike: bool) -> Attempt:
    number = "7731" if index % 2 else "9"
    note = "as asked" if alike else f"as asked in {case.id}, {index}"
    served = Served('{"status": "sent", "items": [{"sku": "a", "count": 2}]}')
    cycles = (
        (Call("get_order", json.dumps({"order_number": number, "note": note}), served),),
        (Call("cancel_order", json.dumps({"order_number": number}), served),),
    )
    sample = Sample(cycles, f"Order {number} was sent, {note}.", Ending.ANSWERED)
    sources = (("exact",), ("exact",))
    return Attempt(
        case=case.id, version=1, side="candidate", index=index, sample=sample, sources=sources, raw=("x" * 500,)
    )


def spent(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def run(folder: Path, num_replies: int, rounds: int) -> Iterator[dict[str, Any]]:
    numbers = range(1, num_replies // SAMPLES + 1)
    file = written(folder / "cases.jsonl", *(made(n, expected=expected(KINDS[n % len(KINDS)])) for n in numbers))
    case_lines = file.read_bytes().splitlines(keepends=True)
    cases = read_cases(case_lines).cases
    answers = folder / "replies.jsonl"
    attempts, alike = ([attempt(case, n, alike=a) for case in cases for n in range(SAMPLES)] for a in (False, True))
    answers.write_text("".join(each.line() + "\n" for each in attempts))
    told = answers.read_bytes().splitlines()
    wanted = {case.id: SAMPLES for case in cases}
    reports = ["--out-json", folder / "r.json", "--out-junit", folder / "j.xml", "--out-md", folder / "s.md"]
    arguments = list(map(str, ["--file", file, "--answers", answers, *reports]))

    def whole() -> None:
        (folder / "s.md").unlink(missing_ok=True)  # it is appended to
        with redirect_stdout(io.StringIO()):
            command(arguments)

    def loads(lines: list[bytes]) -> None:
        for line in lines:
            json.loads(line)

    for name, unit, lines, work in (
        ("cases read and checked", "cases/s", case_lines, lambda: read_cases(case_lines)),
        ("stored replies read", "replies/s", told, lambda: list(read_attempts(told))),
        ("stored replies judged", "replies/s", told, lambda: results_of(cases, attempts, expected=wanted)),
        ("stored replies judged, five alike", "replies/s", told, lambda: results_of(cases, alike, expected=wanted)),
        ("read, judged and reported by the command", "replies/s", told, whole),
    ):
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(len(lines) / spent(work))
            theirs.append(len(lines) / spent(partial(loads, lines)))
        target = {"target": 20_000} if "judged" in name and work is not whole else {}
        yield figure(name, unit, ours, theirs, YARDSTICK, **target)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How fast stored replies are judged again.")
    parser.add_argument("replies", type=int, nargs="?", default=10_000)
    parser.add_argument("--rounds", type=int, default=5, help="measurements per figure, at least 2")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for line in run(Path(folder), options.replies, options.rounds):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
