"""The figures that the statistics are known by, and scipy as an oracle on random tables."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from quality.cases import statistics
from quality.cases.statistics import Change, State

LEISURELY = settings(deadline=None, max_examples=60)


@pytest.mark.parametrize(("n", "low"), [(5, 0.566), (10, 0.72), (20, 0.84)])
def test_all_of_n_still_allows_for_a_lower_rate(n: int, low: float) -> None:
    interval = statistics.wilson(n, n)
    assert interval.low == pytest.approx(low, abs=0.005)
    assert interval.high == 1.0


@pytest.mark.parametrize(
    ("passes_a", "n_a", "passes_b", "n_b", "p"),
    [(5, 5, 1, 5, 0.024), (8, 8, 4, 8, 0.038), (10, 10, 6, 10, 0.043), (20, 20, 15, 20, 0.024), (3, 3, 0, 3, 0.05)],
)
def test_a_drop_of_one_case(passes_a: int, n_a: int, passes_b: int, n_b: int, p: float) -> None:
    assert statistics.fisher_drop(passes_a, n_a, passes_b, n_b) == pytest.approx(p, abs=0.0005)
    if n_a > 3:
        assert statistics.fisher_drop(passes_a, n_a, passes_b + 1, n_b) > 0.05


@pytest.mark.parametrize(("b", "c", "p"), [(6, 0, 0.031), (8, 1, 0.039), (10, 2, 0.039), (5, 0, 0.0625), (0, 0, 1.0)])
def test_a_drop_of_a_suite(b: int, c: int, p: float) -> None:
    assert statistics.mcnemar(b, c) == pytest.approx(p, abs=0.0005)
    assert statistics.mcnemar(c, b) == statistics.mcnemar(b, c)


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "mended", "cases"), statistics.SMALLEST_SUITES)
def test_smallest_suites_are_computed(broken: float, mended: float, cases: int) -> None:
    assert statistics.suite_power(cases, broken, mended) >= statistics.POWER
    assert statistics.suite_power(cases - 10, broken, mended) < statistics.POWER
    assert statistics.smallest_suite(broken, mended) == cases


@pytest.mark.parametrize(("rate", "k", "share"), [(0.95, 5, 0.77), (0.95, 3, 0.86)])
def test_all_of_k_is_a_hard_rule_for_soft_cases(rate: float, k: int, share: float) -> None:
    assert rate**k == pytest.approx(share, abs=0.005)
    assert statistics.pass_hat_k(10_000, 9_500, k) == pytest.approx(share, abs=0.005)


counts = st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@LEISURELY
@given(counts, counts)
def test_fisher_is_scipys(a: tuple[int, int], b: tuple[int, int]) -> None:
    table = [[a[0], a[1] - a[0]], [b[0], b[1] - b[0]]]
    expected = stats.fisher_exact(table, alternative="greater").pvalue
    assert statistics.fisher_drop(*a, *b) == pytest.approx(float(expected), abs=1e-9)


@LEISURELY
@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_scipys_binomial_test(b: int, c: int) -> None:
    expected = stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert statistics.mcnemar(b, c) == pytest.approx(float(expected), abs=1e-9)


@LEISURELY
@given(counts, st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_scipys(count: tuple[int, int], confidence: float) -> None:
    expected = stats.binomtest(*count).proportion_ci(confidence, method="wilson")
    interval = statistics.wilson(*count, confidence)
    assert interval.low == pytest.approx(float(expected.low), abs=1e-9)
    assert interval.high == pytest.approx(float(expected.high), abs=1e-9)


@LEISURELY
@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_stepwise(p_values: list[float]) -> None:
    """Holm by its definition: the smallest p against alpha / m, the next against alpha / (m - 1), until one is kept."""
    adjusted = statistics.holm(p_values)
    for alpha in (0.01, 0.05, 0.3):
        order = sorted(range(len(p_values)), key=lambda place: (p_values[place], place))
        rejected = set()
        for rank, place in enumerate(order):
            if p_values[place] * (len(p_values) - rank) > alpha:
                break
            rejected.add(place)
        assert {place for place, p in enumerate(adjusted) if p <= alpha} == rejected


def test_holm_by_hand() -> None:
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([]) == []


@LEISURELY
@given(st.integers(1, 15).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_and_pass_hat_k_are_what_drawing_gives(drawn: tuple[int, int, int]) -> None:
    n, c, k = drawn
    none_passes = float(stats.hypergeom(n, c, k).pmf(0))
    all_pass = float(stats.hypergeom(n, c, k).pmf(k))
    assert statistics.pass_at_k(n, c, k) == pytest.approx(1 - none_passes, abs=1e-9)
    assert statistics.pass_hat_k(n, c, k) == pytest.approx(all_pass, abs=1e-9)


def test_pass_hat_k_is_not_the_rate_to_the_k() -> None:
    assert statistics.pass_hat_k(5, 4, 5) == 0.0
    assert statistics.pass_hat_k(5, 4, 2) == pytest.approx(0.6)


def test_the_bootstrap_is_repeatable_and_near_the_normal_interval() -> None:
    source = random.Random(7)
    rates = [source.choice([0, 0.2, 0.8, 1, 1, 1]) for _ in range(200)]
    interval = statistics.bootstrap_mean(rates, seed=1)
    assert interval == statistics.bootstrap_mean(rates, seed=1)
    assert interval != statistics.bootstrap_mean(rates, seed=2)
    mean = sum(rates) / len(rates)
    error = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / len(rates) / len(rates))
    assert interval.low == pytest.approx(mean - 1.96 * error, abs=0.01)
    assert interval.high == pytest.approx(mean + 1.96 * error, abs=0.01)


def test_pairs_are_drawn_together() -> None:
    """Each case got worse by exactly 0.2: drawing pairs shows that without any spread."""
    pairs = [(rate / 10, rate / 10 - 0.2) for rate in range(2, 11)]
    interval = statistics.bootstrap_difference(pairs, seed=1)
    assert (interval.low, interval.high) == (pytest.approx(-0.2), pytest.approx(-0.2))


@pytest.mark.parametrize(
    ("need", "passes", "n", "expected"),
    [
        ("all", 5, 5, True),
        ("all", 4, 5, False),
        ("majority", 3, 5, True),
        ("majority", 2, 4, False),
        (0.8, 4, 5, True),
        (0.8, 3, 5, False),
        (0.1, 1, 10, True),
        ("all", 0, 0, False),
    ],
)
def test_need(need: str | float, passes: int, n: int, expected: bool) -> None:
    assert statistics.meets(need, passes, n) is expected


def test_states_and_changes() -> None:
    assert [statistics.case_state(*each) for each in ((3, 3), (1, 3), (0, 3), (0, 0))] == list(State)
    assert statistics.change_of((5, 5), (0, 5)) is Change.NEWLY_FAILING
    assert statistics.change_of((0, 5), (5, 5)) is Change.NEWLY_PASSING
    assert statistics.change_of((5, 5), (4, 5)) is Change.FLAKY_CHANGED
    assert statistics.change_of((4, 5), (3, 5)) is Change.UNCHANGED
    assert statistics.change_of((5, 5), None) is Change.NOT_COMPARED
    assert statistics.change_of((5, 5), (0, 0)) is Change.NOT_COMPARED
    assert statistics.is_suspect((5, 5), (4, 5))
    assert not statistics.is_suspect((4, 5), (8, 10))


def test_kappa_by_hand() -> None:
    pairs = [("a", "a")] * 20 + [("a", "b")] * 5 + [("b", "a")] * 10 + [("b", "b")] * 15
    assert statistics.kappa(pairs) == pytest.approx(0.4)
    assert statistics.kappa([]) is None
    assert statistics.kappa([("a", "a")] * 3) is None


def test_small_suites_are_warned_of() -> None:
    assert "too few" in (statistics.suite_warning(29) or "")
    assert "misses most" in (statistics.suite_warning(30) or "")
    assert statistics.suite_warning(80) is None


def test_counts_that_cannot_be() -> None:
    for wrong in (
        lambda: statistics.wilson(3, 2),
        lambda: statistics.pass_at_k(5, 3, 6),
        lambda: statistics.mcnemar(-1, 2),
    ):
        with pytest.raises(ValueError, match=r"cannot be|not negative"):
            wrong()
