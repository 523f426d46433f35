"""What makes a label of an item worth more, and that the line about it says so."""

from collections.abc import Sequence
from random import Random

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ordering import Labelled, at_random, found, most_useful_next
from quality.review.hints import BY_NAME
from quality.review.queues.usefulness import MAX_SCORE, WEIGHTS, Candidate, Counts, Known, best_first, useful
from quality.review.queues.wording import why_line

SEEN = Known(
    rules={"schema_violation": Counts(40, 2), "slow_call": Counts(1, 60)},
    tools={"refund": Counts(30, 30), "weather": Counts(2, 300), "new": Counts(1, 1)},
    all=Counts(33, 331),
)


def score(tool: str, *rules: str, kinds: int = 0, known: Known = SEEN) -> float:
    return useful(Candidate(tool, rules, kinds), known).score


def test_a_rule_that_people_agreed_with_weighs_more_than_one_they_did_not() -> None:
    assert score("weather", "schema_violation") > score("weather", "retry_storm") > score("weather", "slow_call")
    assert score("weather", "slow_call") > score("weather")


def test_two_hints_say_more_than_one() -> None:
    assert score("weather", "schema_violation", "retry_storm") > score("weather", "schema_violation")


def test_a_tool_of_bad_repute_or_of_none_comes_before_a_good_one() -> None:
    assert score("refund") > score("weather")
    assert score("never seen") > score("weather")
    assert score("new") > score("weather")


def test_disagreement_lifts_an_item() -> None:
    assert score("weather", kinds=3) > score("weather", kinds=2) > score("weather", kinds=1) == score("weather")


def test_without_any_label_hints_decide() -> None:
    nothing = Known()
    waiting = [Candidate("a"), Candidate("b", ("slow_call",)), Candidate("c", ("slow_call", "unknown_tool"))]
    assert best_first(waiting, nothing) == [2, 1, 0]


def test_equal_ones_stay_in_their_order() -> None:
    assert best_first([Candidate("a"), Candidate("a"), Candidate("a")], SEEN) == [0, 1, 2]


counts = st.builds(Counts, st.integers(0, 5_000), st.integers(0, 5_000))
names = st.sampled_from(["a", "b", *list(BY_NAME)[:4]])
few = st.dictionaries(names, counts, max_size=3)


@given(
    st.builds(Candidate, names, st.lists(names, max_size=4, unique=True).map(tuple), st.integers(0, 5)),
    st.builds(Known, rules=few, tools=few, all=counts),
)
def test_a_score_is_the_sum_of_its_parts_and_each_has_its_bound(candidate: Candidate, known: Known) -> None:
    told = useful(candidate, known)
    assert 0 <= told.score <= MAX_SCORE
    assert 0 <= told.priority <= MAX_SCORE * 1_000
    assert sum(part["score"] for part in told.why.values()) == pytest.approx(told.score, abs=0.04)
    assert all(0 < part["score"] <= WEIGHTS[name] + 1e-9 for name, part in told.why.items())
    assert isinstance(why_line(told.why), str)


def test_the_line_tells_the_parts_that_count_most() -> None:
    line = why_line(useful(Candidate("refund", ("schema_violation", "slow_call")), SEEN).why)
    assert line.startswith(
        "2 hints (against the schema, unusually slow) · 30 of 60 labelled calls of this tool were bad"
    )
    assert why_line(useful(Candidate("never seen"), SEEN).why) == "Tool never labelled yet"
    assert why_line(useful(Candidate("weather", (), 2), SEEN).why).startswith("Reviewers disagree")
    assert why_line({}) == ""
    assert why_line({"of a later version": {"score": 9}, "hints": None}) == ""
    with translation.override("it"):
        assert why_line(useful(Candidate("refund", ("schema_violation",)), SEEN).why)


def labelled(random: Random) -> Sequence[Labelled]:
    """A hundred good calls of five tools, and twenty bad ones: most of them hinted at, some good ones too."""
    good = [Candidate(f"t{random.randrange(5)}", ("slow_call",) if random.random() < 0.2 else ()) for _ in range(100)]
    bad = [Candidate("t0", ("schema_violation",) if random.random() < 0.7 else ()) for _ in range(20)]
    items = [Labelled(one, False) for one in good] + [Labelled(one, True) for one in bad]
    random.shuffle(items)
    return items


def test_a_reviewer_who_follows_it_finds_more_bad_calls_early_than_by_chance() -> None:
    for seed in range(5):
        items = labelled(Random(seed))
        guided, chance = (found(items, order(items, Random(seed))) for order in (most_useful_next, at_random))
        assert guided > 2 * chance
