"""How fast stored replies are judged again, with all reports written.

    python -m benchmarks.judge [10000] [--rounds 3]

The cases are of five kinds (a first reply, an order of calls, arguments of many matchers, a reply, nothing but limits),
the replies half right and half wrong. One JSON object a line: seconds of each part, and judgements a second of judging
alone and of the whole command. The yardstick is `json.loads` of the same replies.
"""

import argparse
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from quality.cases.attempt import Attempt, read_attempts
from quality.cases.cli import main as command
from quality.cases.record import Case, read_cases
from quality.cases.results import results_of
from quality.cases.sample import Call, Ending, Sample, Served
from tests.cases.samples import calls
from tests.cases.suite import expected, made, written

SAMPLES = 10
WANTED = {"tool": "get_order", "args": {"order_number": {"regex": "77[0-9]+"}, "note": {"ignore": True}}}
TWO = {"tool": "cancel_order", "args": {"order_number": {"one_of": ["7731", "7732"]}}}
KINDS: list[dict[str, Any]] = [
    calls("first", WANTED),
    calls("exact", WANTED, TWO),
    calls("any_order", {"tool": "get_order", "args": {"order_number": {"all": [{"text": {"of": "7731"}}]}}}, TWO),
    {"version": 1, "reply": {"must": [{"contains": "sent"}, {"number": {"of": 7731}}]}},
    {"version": 1, "forbid": [{"tool": "refund_*"}], "limits": {"max_calls": 3, "max_cycles": 3}},
]


def attempt(case: Case, index: int) -> Attempt:
    number = "7731" if index % 2 else "9"
    served = Served('{"status": "sent", "items": [{"sku": "a", "count": 2}]}')
    cycles = (
        (Call("get_order", json.dumps({"order_number": number, "note": "as asked"}), served),),
        (Call("cancel_order", json.dumps({"order_number": number}), served),),
    )
    sample = Sample(cycles, f"Order {number} was sent.", Ending.ANSWERED)
    sources = (("exact",), ("exact",))
    return Attempt(
        case=case.id, version=1, side="candidate", index=index, sample=sample, sources=sources, raw=("x" * 500,)
    )


def timed(work: Callable[[], Any], rounds: int) -> float:
    spent = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replies", type=int, nargs="?", default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbers = range(1, options.replies // SAMPLES + 1)
        file = written(folder / "cases.jsonl", *(made(n, expected=expected(KINDS[n % len(KINDS)])) for n in numbers))
        with file.open("rb") as lines:
            cases = read_cases(lines).cases
        answers = folder / "replies.jsonl"
        answers.write_text("".join(attempt(case, n).line() + "\n" for case in cases for n in range(SAMPLES)))
        told = answers.read_bytes().splitlines()
        attempts = list(read_attempts(told))
        wanted = {case.id: SAMPLES for case in cases}
        parts = {
            "json.loads": timed(lambda: [json.loads(line) for line in told], options.rounds),
            "read": timed(lambda: list(read_attempts(told)), options.rounds),
            "judge": timed(lambda: results_of(cases, attempts, expected=wanted), options.rounds),
        }
        reports = ["--out-json", folder / "r.json", "--out-junit", folder / "j.xml", "--out-md", folder / "s.md"]
        arguments = list(map(str, ["--file", file, "--answers", answers, *reports]))

        def whole() -> None:
            with redirect_stdout(io.StringIO()):
                command(arguments)

        parts["whole command"] = timed(whole, options.rounds)
    for part, seconds in parts.items():
        print(json.dumps({"name": part, "seconds": round(seconds, 3), "a_second": round(len(told) / seconds)}))


if __name__ == "__main__":
    main()
