"""Our judge beside BFCL's own checker: right and damaged answers to 200 of its tasks, judged by both.

    python -m benchmarks.bfcl

Run by hand: it takes `bfcl-eval` from PyPI (2 MB, without its dependencies) into .cache/. One JSON object a line and
kind of damage: `value` is the share of answers on which both agree. A table and all disagreements follow on standard
error, each with the rule of BFCL that explains it: that rule undone for this answer, both agree. One that is not
explained makes the exit code 1.
"""

import json
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations, islice, permutations
from pathlib import Path
from typing import Any, TextIO

from benchmarks.bfcl_tasks import STRINGS, Answer, Task, answers, judge_of, sample_of, tasks
from quality.cases.texts import Folding
from quality.cases.toolset import Toolset
from quality.cases.values import plain

VERSION = "2026.3.23"
ROOT = Path(__file__).parents[1]
HOME = ROOT / ".cache" / f"bfcl-eval-{VERSION}"
ORACLE = Path(__file__).with_name("bfcl_oracle.py")
MAX_ORDERS = 720
FAULTY = {"parallel_multiple_26": "its truth names a parameter that no function declares"}
OURS = Folding(case="case" in STRINGS, space=STRINGS["space"], punct="punct" in STRINGS)

type Valid = Callable[[Task, Answer], bool]
type Undo = Callable[[Task, Answer], tuple[Task, Answer]]


# Their rules, each undone in an answer or in the task.


def _spelled(fold: Callable[[str], str]) -> Undo:
    """Each text as the task spells it, if it folds to the same."""

    def undo(task: Task, answer: Answer) -> tuple[Task, Answer]:
        known = {fold(text): text for text in _texts([each["arguments"] for each in task["possible_answers"]])}
        return task, _each(answer, lambda each: known.get(fold(each), each) if isinstance(each, str) else each)

    return undo


def _folded_by_bfcl(text: str) -> str:
    return "".join(char for char in text if char not in " ,./-_*^").lower().replace("'", '"')


def _whole(task: Task, answer: Answer) -> tuple[Task, Answer]:
    """5.0 as 5."""
    return task, _each(answer, lambda each: int(each) if isinstance(each, float) and each.is_integer() else each)


def _numbers(task: Task, answer: Answer) -> tuple[Task, Answer]:
    """True as 1."""
    return task, _each(answer, lambda each: int(each) if isinstance(each, bool) else each)


def _unlisted(task: Task, answer: Answer) -> tuple[Task, Answer]:
    """Tools that list no values."""
    return {**task, "tools": _without(task["tools"], "enum")}, answer


def _filled(task: Task, answer: Answer) -> tuple[Task, Answer]:
    """Arguments that were left out, with their defaults."""
    tools = Toolset.read(task["tools"])
    return task, [
        (name, {**plain(tools.defaults(name)), **arguments} if isinstance(arguments, dict) else arguments)
        for name, arguments in answer
    ]


def _abstained(task: Task, answer: Answer) -> tuple[Task, Answer]:
    return task, [(name, arguments) for name, arguments in answer if not isinstance(arguments, str)]


def _each(answer: Answer, change: Callable[[Any], Any]) -> Answer:
    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: changed(item) for name, item in value.items()}
        return [changed(item) for item in value] if isinstance(value, list) else change(value)

    return [(name, changed(arguments)) for name, arguments in answer]


def _without(value: Any, keyword: str) -> Any:
    if isinstance(value, dict):
        return {
            name: _without(item, keyword)
            for name, item in value.items()
            if name != keyword or not isinstance(item, list)
        }
    return [_without(item, keyword) for item in value] if isinstance(value, list) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


WE_REFUSE: dict[str, Undo] = {
    "BFCL does not look at the values that a tool lists (enum)": _unlisted,
    "BFCL drops blanks and , . / - _ * ^ from texts, signs and decimal points too": _spelled(_folded_by_bfcl),
    "BFCL looks at types one level deep: inside, true passes for 1": _numbers,
    "BFCL takes a call that cannot be read for none": _abstained,
}
THEY_REFUSE: dict[str, Undo] = {
    "BFCL takes no 5.0 for an integer": _whole,
    "BFCL drops fewer characters from texts than the cases ask for": _spelled(OURS.fold),
    "BFCL does not know a tool's defaults": _filled,
}
GREEDY = "BFCL pairs greedily: in another order it takes the same calls"


@dataclass
class Disagreement:
    task: Task
    kind: str
    answer: Answer
    ours: bool
    reasons: list[str]
    rule: str | None

    def __str__(self) -> str:
        side = "only we accept" if self.ours else "only BFCL accepts"
        told = f"{self.task['id']}, {self.kind}: {side} {json.dumps(self.answer, ensure_ascii=False)}"
        return f"{told}\n    {self.rule or 'NOT EXPLAINED: ' + '; '.join(self.reasons)}"


@dataclass
class Kind:
    """Answers of one kind: how both judged them."""

    both: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return self.both.total()

    @property
    def agreed(self) -> int:
        return self.both[True, True] + self.both[False, False]

    def figure(self, name: str) -> dict[str, Any]:
        return {
            "name": f"agreement, {name}",
            "value": round(self.agreed / self.count, 4),
            "unit": "share of answers",
            "compared_with": {"name": f"bfcl-eval {VERSION}"},
            "n": self.count,
            "both_accept": self.both[True, True],
            "both_refuse": self.both[False, False],
            "only_we_accept": self.both[True, False],
            "only_they_accept": self.both[False, True],
            "explained": dict(self.rules),
        }


def explain(task: Task, answer: Answer, *, ours: bool, theirs: Valid) -> str | None:
    """The rule of BFCL that the difference comes from, or several together; None where there is none."""
    if reason := FAULTY.get(task["id"]):
        return f"fault of the task: {reason}"
    rules = THEY_REFUSE if ours else WE_REFUSE
    accepts = theirs if ours else _ours
    if ours and any(theirs(task, list(order)) for order in islice(permutations(answer), MAX_ORDERS)):
        return GREEDY
    for size in range(1, len(rules) + 1):
        for names in combinations(rules, size):
            undone = task, answer
            for name in names:
                undone = rules[name](*undone)
            if accepts(*undone):
                return "; ".join(names)
    return None


def _ours(task: Task, answer: Answer) -> bool:
    return judge_of(task).judge(sample_of(answer)).passed


def compare(theirs: Valid) -> tuple[dict[str, Kind], list[Disagreement]]:
    kinds: dict[str, Kind] = {}
    found: list[Disagreement] = []
    for task in tasks():
        judge = judge_of(task)
        for name, answer in answers(task):
            kind = kinds.setdefault(name, Kind())
            ours = judge.judge(sample_of(answer))
            accepted = theirs(task, answer)
            kind.both[ours.passed, accepted] += 1
            if ours.passed is not accepted:
                rule = explain(task, answer, ours=ours.passed, theirs=theirs)
                kind.rules[rule or "not explained"] += 1
                reasons = [f"{reason.code} {reason.path or ''} {reason.got!r}" for reason in ours.reasons]
                found.append(Disagreement(task, name, answer, ours.passed, reasons, rule))
    return kinds, found


# Their checker.


def _environment() -> Path:
    """The Python of an environment that holds the package; made once."""
    python = HOME / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not (HOME / "ready").exists():
        venv.create(HOME, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*install, f"bfcl-eval=={VERSION}"], check=True, stdout=sys.stderr)
        (HOME / "ready").touch()
    return python


@contextmanager
def checker() -> Iterator[Valid]:
    with subprocess.Popen(
        [_environment(), ORACLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ask, told = process.stdin, process.stdout

        def valid(task: Task, answer: Answer) -> bool:
            ask.write(json.dumps({"id": task["id"], "category": task["category"], "calls": answer}) + "\n")
            ask.flush()
            line = told.readline()
            if not line:
                raise RuntimeError("BFCL's checker ended: what it wrote last stands above")
            return bool(json.loads(line))

        yield valid
        ask.close()


def _table(kinds: dict[str, Kind], out: TextIO) -> None:
    out.write(f"\n{'kind of answer':48}{'answers':>8}{'agreed':>9}{'only we':>9}{'only BFCL':>11}\n")
    for name, kind in kinds.items():
        share = f"{kind.agreed / kind.count:.1%}"
        out.write(f"{name:48}{kind.count:>8}{share:>9}{kind.both[True, False]:>9}{kind.both[False, True]:>11}\n")


def main() -> int:
    with checker() as theirs:
        kinds, found = compare(theirs)
    whole = Kind()
    for name, kind in kinds.items():
        print(json.dumps(kind.figure(name)))
        whole.both += kind.both
        whole.rules += kind.rules
    print(json.dumps(whole.figure("all answers")))
    for each in sorted(found, key=lambda each: (each.rule is not None, each.rule or "", each.kind)):
        sys.stderr.write(f"{each}\n")
    _table({**kinds, "all answers": whole}, sys.stderr)
    for rule, count in whole.rules.most_common():
        sys.stderr.write(f"{count:>8}  {rule}\n")
    return int(any(each.rule is None for each in found))


if __name__ == "__main__":
    sys.exit(main())
