"""What counts are told to mean: cases, suites, comparisons, the gate. And what a run may use up."""

from collections.abc import Mapping
from typing import Any

import pytest

from engine.limits import Price
from engine.providers.protocol import Usage
from quality.cases.attempt import Attempt
from quality.cases.budgets import Allowance, BadBudget, Budget, OutOfBudget, Spent
from quality.cases.comparison import Counts, compare
from quality.cases.confirm import FRESH, confirming
from quality.cases.gate import Exit, gate_of
from quality.cases.results import CaseResult, Standing, SuiteResult, results_of
from quality.cases.sample import Call, Ending, Sample
from quality.cases.statistics import Change
from tests.cases.suite import case_of, right

PASS, FAIL = Sample(((Call("get_order", '{"order_number": "7731"}'),),)), Sample(((Call("get_order", "{}"),),))
ERROR = Sample(ending=Ending.ERROR, error="x")
SAMPLES = {"p": PASS, "f": FAIL, "e": ERROR}


def result(number: int, letters: str, need: Any = "all", expected: int | None = None, **more: Any) -> CaseResult:
    """A case with a sample for each letter: p passed, f failed, e error."""
    case = case_of(number, right(verdict={"need": need}), **more)
    attempts = [
        Attempt(case=case.id, version=1, side="candidate", index=index, sample=SAMPLES[letter])
        for index, letter in enumerate(letters)
    ]
    [found] = results_of([case], attempts, expected={case.id: len(letters) if expected is None else expected})
    return found


@pytest.mark.parametrize(
    ("letters", "need", "expected", "standing"),
    [
        ("ppp", "all", 3, "passed"),
        ("ppf", "all", 3, "failed"),
        ("ppe", "all", 3, "undecided"),
        ("pfe", "all", 3, "failed"),
        ("pp", "all", 3, "undecided"),
        ("ppe", "majority", 3, "passed"),
        ("pfe", "majority", 3, "undecided"),
        ("ffe", "majority", 3, "failed"),
        ("ppppf", 0.8, 5, "passed"),
        ("pppff", 0.8, 5, "failed"),
        ("eee", "all", 3, "undecided"),
        ("", "all", 3, "undecided"),
    ],
)
def test_missing_samples_decide_nothing_that_they_could_change(
    letters: str, need: Any, expected: int, standing: str
) -> None:
    assert result(1, letters, need, expected).standing is Standing(standing)


def test_a_suite_is_the_mean_of_its_cases() -> None:
    suite = SuiteResult(results=[result(1, "pp"), result(2, "pf"), result(3, "ee")])
    rate = suite.rate
    assert rate is not None
    assert rate[0] == 0.75
    assert (rate[1].low, rate[1].high) == (0.5, 1.0)
    assert suite.summary()["verdicts"] == {"pass": 3, "fail": 0, "invalid_call": 1, "diverged": 0, "error": 2}


def before(letters: Mapping[int, str]) -> dict[str, Counts]:
    return {f"REG-{number}": Counts(1, text.count("p"), len(text)) for number, text in letters.items()}


@pytest.mark.parametrize(("broken", "mended", "is_down"), [(6, 0, True), (5, 0, False), (8, 1, True), (7, 2, False)])
def test_a_suite_got_worse_by_the_exact_test_of_mcnemar(broken: int, mended: int, *, is_down: bool) -> None:
    first = {n: "f" if broken < n <= broken + mended else "p" for n in range(1, 41)}
    now = [result(n, "f" if n <= broken else "p") for n in range(1, 41)]
    comparison = compare(before(first), now)
    assert (comparison.broken, comparison.mended, comparison.is_down) == (broken, mended, is_down)
    assert comparison.confirmed == []  # one sample a case shows nothing of a single one
    assert gate_of(SuiteResult(results=now), comparison).exit is (Exit.FAILED if is_down else Exit.PASSED)


def test_few_cases_are_not_judged_as_a_suite() -> None:
    now = [result(n, "f") for n in range(1, 9)]
    comparison = compare(before(dict.fromkeys(range(1, 9), "p")), now)
    assert comparison.p < 0.05
    assert not comparison.is_down


def test_many_suspects_need_more_than_one() -> None:
    """From 5/5 to 1/5 is p = 0.024 alone; among ten suspects it shows nothing."""
    alone = compare(before({1: "ppppp"}), [result(1, "pffff")])
    assert [each.confirmed for each in alone.cases] == [True]
    assert alone.cases[0].p == pytest.approx(0.0238, abs=1e-4)
    numbers = range(1, 11)
    many = compare(before(dict.fromkeys(numbers, "ppppp")), [result(n, "pffff") for n in numbers])
    assert not any(each.confirmed for each in many.cases)


def test_fresh_samples_alone_decide() -> None:
    now = [result(1, "fffff"), result(2, "pffff")]
    fresh = {"REG-1": ((10, 10), (10, 10)), "REG-2": ((10, 10), (3, 10))}
    comparison = compare(before({1: "ppppp", 2: "ppppp"}), now, fresh=fresh)
    assert {each.case: each.confirmed for each in comparison.cases} == {"REG-1": False, "REG-2": True}
    assert comparison.of_change(Change.NEWLY_FAILING)[0].case == "REG-1"
    gate = gate_of(SuiteResult(results=now), comparison)
    assert (gate.exit, gate.red) == (Exit.FAILED, {"REG-2"})


@pytest.mark.parametrize("judged", [0, 9])
def test_a_suspect_that_could_not_be_run_again_leaves_the_gate_open(judged: int) -> None:
    now = [result(1, "pffff")]
    comparison = compare(before({1: "ppppp"}), now, fresh={"REG-1": ((10, 10), (judged, judged))})
    gate = gate_of(SuiteResult(results=now), comparison)
    assert (gate.exit, gate.open) == (Exit.INCOMPLETE, {"REG-1"})
    assert "fresh samples" in gate.missing[0]
    enough = compare(before({1: "ppppp"}), now, fresh={"REG-1": ((10, 10), (10, 10))})
    assert gate_of(SuiteResult(results=now), enough).exit is Exit.PASSED


def test_suspects_are_run_again_until_there_is_no_doubt() -> None:
    now = [result(number, "pffff") for number in (1, 2, 3)]
    rounds = confirming(before({1: "ppppp", 2: "ppppp", 3: "pffff"}), now)
    first = next(rounds)
    assert (first.cases, first.indexes) == (("REG-1", "REG-2"), range(FRESH, FRESH + 10))
    second = rounds.send({"REG-1": ((10, 10), (0, 10)), "REG-2": ((10, 10), (9, 10))})
    assert (second.cases, second.indexes) == (("REG-2",), range(FRESH + 10, FRESH + 20))
    assert FRESH + 3 in second  # what the round before asked for counts, too
    with pytest.raises(StopIteration) as decided:
        rounds.send({"REG-2": ((20, 20), (19, 20))})
    assert decided.value.value == {"REG-1": ((10, 10), (0, 10)), "REG-2": ((20, 20), (19, 20))}
    with pytest.raises(StopIteration):
        next(confirming({}, now))


def test_a_quarantined_case_is_never_gated() -> None:
    now = [result(1, "fffff", tags=["quarantine"])]
    comparison = compare(before({1: "ppppp"}), now)
    assert gate_of(SuiteResult(results=now), comparison, strict=True).exit is Exit.PASSED
    assert gate_of(SuiteResult(results=now)).exit is Exit.PASSED


@pytest.mark.parametrize(
    "spent",
    [Spent(calls=2), Spent(prompt_tokens=600, completion_tokens=400), Spent(cost=0.5), Spent(time=60.0)],
)
def test_a_budget_goes_on_where_an_earlier_run_left_it(spent: Spent) -> None:
    allowed = Allowance(calls=2, tokens=1000, cost=0.5, time=60.0)
    Budget("the run", allowed).check()
    with pytest.raises(OutOfBudget):
        Budget("the run", allowed, spent=spent).check()


def test_budgets_are_read_and_kept() -> None:
    allowed = Allowance.read("calls=2, tokens=1e3,cost=0.5,time=60")
    assert allowed == Allowance(calls=2, tokens=1000, cost=0.5, time=60.0)
    assert Allowance.read("") == Allowance()
    for text in ("calls", "calls=-1", "rounds=3", "calls=x", "time=nan", "cost=inf"):
        with pytest.raises(BadBudget):
            Allowance.read(text)
    now = [0.0]
    budget = Budget("the run", allowed, clock=lambda: now[0])
    budget.begin_call()
    budget.add(Usage(999, 0), Price(1.0, 1.0))
    budget.check()
    budget.add(Usage(0, 1))
    with pytest.raises(OutOfBudget, match="1,000 of 1,000 tokens"):
        budget.check()
    late = Budget("REG-1", Allowance(time=60), clock=lambda: now[0])
    now[0] = 60.0
    with pytest.raises(OutOfBudget, match="60 s of REG-1"):
        late.begin_call()
