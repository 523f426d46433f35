"""Agreement: worked examples as their authors printed them, and other libraries' figures on data nobody chose."""

import math
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import krippendorff
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from quality.review import agreement as measures
from quality.review.agreement import How, Measure, Triple, Why, agreement, sheet_of

LEISURELY = settings(deadline=None, max_examples=80)
LABELS = ("good_reply", "wrong_tool", "missing_tool", "bad_args", "other")

type Cells = Mapping[tuple[str, str], int]


def table(names: str, *rows: Sequence[int]) -> dict[tuple[str, str], int]:
    """A table of counts, rows and columns in the order of the names."""
    words = names.split()
    return {
        (one, other): count
        for one, row in zip(words, rows, strict=True)
        for other, count in zip(words, row, strict=True)
        if count
    }


def triples(**said: str) -> list[Triple]:
    """Answers of named observers, one a unit; a point is none."""
    return [
        (unit, observer, answer)
        for observer, answers in said.items()
        for unit, answer in enumerate(answers.split())
        if answer != "."
    ]


def alpha_of(given: Iterable[Triple]) -> Measure:
    return agreement(sheet_of(given)).alpha


# Worked examples.

COHEN = table("1 2 3", (88, 10, 2), (14, 40, 6), (18, 10, 12))
FLEISS_COHEN_EVERITT = table("1 2 3", (106, 10, 4), (22, 28, 10), (2, 12, 6))
PSYCHIATRISTS = table("psychotic neurotic organic", (75, 1, 4), (5, 4, 1), (0, 0, 10))


def test_kappa_of_cohen_1960() -> None:
    """Cohen, A coefficient of agreement for nominal scales, Educational and Psychological Measurement 20 (1960), 37-46:
    200 cases, 70 % agreed, 41 % by chance, kappa .492."""
    found = measures.pair("a", "b", COHEN, ())
    assert found.raw.value == pytest.approx(0.70)
    assert found.kappa.value == pytest.approx(0.492, abs=0.0005)
    assert found.kappa.n == 200
    agreed, chance = measures.agreed_shares(COHEN) or (0, 0)
    assert (float(agreed), float(chance)) == (0.70, 0.41)


def test_kappa_of_fleiss_cohen_and_everitt_1969() -> None:
    """Large sample standard errors of kappa and weighted kappa, Psychological Bulletin 72 (1969), 323-327: 200
    subjects, kappa .429. The error of the same table by statsmodels 0.15, `cohens_kappa(...).std_kappa`."""
    found = measures.kappa(FLEISS_COHEN_EVERITT)
    assert found.value == pytest.approx(0.429, abs=0.0005)
    assert measures.kappa_error(FLEISS_COHEN_EVERITT) == pytest.approx(0.05371100486916735)
    assert (found.low, found.high) == (pytest.approx(0.32329979345440496), pytest.approx(0.533843063688452))
    assert found.how is How.ANALYTIC


def test_kappa_of_each_category_of_fleiss() -> None:
    """Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, chapter 18: two raters, 100 subjects. All
    together kappa .68 with standard error .087; psychotic .69, neurotic .50, organic .77."""
    found = measures.pair("a", "b", PSYCHIATRISTS, ("psychotic", "neurotic", "organic"))
    assert found.kappa.value == pytest.approx(0.68, abs=0.005)
    assert measures.kappa_error(PSYCHIATRISTS) == pytest.approx(0.087, abs=0.001)
    assert {label: round(one.value or 0, 2) for label, one in found.labels.items()} == {
        "psychotic": 0.69,
        "neurotic": 0.50,
        "organic": 0.77,
    }


# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), University of Pennsylvania: A, B and C.


def test_alpha_of_binary_data_of_two_observers() -> None:
    found = agreement(sheet_of(triples(meg="0 1 0 0 0 0 0 0 1 0", owen="1 1 1 0 0 1 0 0 0 0")))
    assert found.alpha.value == pytest.approx(0.095, abs=0.0005)
    assert found.raw.value == pytest.approx(0.6)
    assert found.alpha.n == 10
    assert found.alpha.is_small


def test_alpha_of_nominal_data_of_two_observers() -> None:
    given = triples(ben="a a b b d c c c e d d a", gerry="b a b b b c c c e d d d")
    found = agreement(sheet_of(given))
    assert found.alpha.value == pytest.approx(0.692, abs=0.0005)
    assert {one.label: one.num_given for one in found.labels} == {"a": 4, "b": 6, "c": 6, "d": 6, "e": 2}
    assert found.confusion == {
        ("a", "a"): 1, ("a", "b"): 1, ("a", "d"): 1, ("b", "b"): 2, ("b", "d"): 1, ("c", "c"): 3, ("d", "d"): 2,
        ("e", "e"): 1,
    }  # fmt: skip


OBSERVERS = {
    "a": "1 2 3 3 2 1 4 1 2 . . .",
    "b": "1 2 3 3 2 2 4 1 2 5 . 3",
    "c": ". 3 3 3 2 3 4 2 2 5 1 .",
    "d": "1 2 3 3 2 4 4 1 2 5 1 .",
}


def test_alpha_of_nominal_data_with_answers_missing() -> None:
    found = agreement(sheet_of(triples(**OBSERVERS)))
    assert found.alpha.value == pytest.approx(0.743, abs=0.0005)
    assert (found.num_items, found.num_shared, found.num_labels, found.num_reviewers) == (12, 11, 41, 4)
    assert sum(one.num_given for one in found.labels) == 40, "the answer that stands alone is in no figure"


# Rows: patients; columns: how many of six psychiatrists said depression, personality disorder, schizophrenia, neurosis,
# other.
FLEISS_1971 = """00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006"""


def test_alpha_of_each_category_is_that_of_fleiss_1971() -> None:
    """Fleiss, Measuring nominal scale agreement among many raters, Psychological Bulletin 76 (1971), 378-382: kappa
    .430; of the categories .245, .245, .520, .471, .566. His chance draws with replacement, Krippendorff's without:
    1 - kappa = (1 - alpha) * n / (n - 1) of n = 180 answers."""
    given = [
        (patient, f"{patient}/{category}/{number}", category)
        for patient, row in enumerate(FLEISS_1971.split())
        for category, count in zip("abcde", row, strict=True)
        for number in range(int(count))
    ]
    found = agreement(sheet_of(given), labels=tuple("abcde"))

    def kappa(alpha: Measure) -> float:
        assert alpha.value is not None
        return 1 - (1 - alpha.value) * 180 / 179

    assert found.alpha.n == 30
    assert kappa(found.alpha) == pytest.approx(0.430, abs=0.0005)
    assert [round(kappa(one.alpha), 3) for one in found.labels] == [0.245, 0.245, 0.520, 0.471, 0.566]


# Other libraries.


def sheets(reviewers: int) -> st.SearchStrategy[list[Triple]]:
    """Answers of so many reviewers, some of them missing, who often agree."""
    answer = st.one_of(st.none(), st.integers(0, 4))
    unit = st.tuples(st.integers(0, 4), st.lists(answer, min_size=reviewers, max_size=reviewers), st.booleans())

    def told(units: list[tuple[int, list[int | None], bool]]) -> list[Triple]:
        return [
            (number, reviewer, LABELS[truth if agree and said != 4 else said])
            for number, (truth, answers, agree) in enumerate(units)
            for reviewer, said in enumerate(answers)
            if said is not None
        ]

    return st.lists(unit, min_size=1, max_size=40).map(told)


def oracle(given: Sequence[Triple]) -> float | None:
    """Alpha by the library `krippendorff`; None where it is not defined."""
    units, reviewers = sorted({one[0] for one in given}), sorted({one[1] for one in given})
    said = {(unit, reviewer): LABELS.index(label) for unit, reviewer, label in given}
    shared = [unit for unit in units if sum((unit, reviewer) in said for reviewer in reviewers) > 1]
    values = {said[unit, reviewer] for unit in shared for reviewer in reviewers if (unit, reviewer) in said}
    if len(values) < 2:
        return None
    data = [[said.get((unit, reviewer), math.nan) for unit in units] for reviewer in reviewers]
    return float(krippendorff.alpha(data, level_of_measurement="nominal"))


@LEISURELY
@given(sheets(4))
def test_alpha_is_that_of_another_library(given: list[Triple]) -> None:
    found, expected = alpha_of(given), oracle(given)
    if expected is None:
        assert found.value is None
        assert found.why in (Why.NO_ITEMS, Why.ONE_ANSWER)
    else:
        assert found.value == pytest.approx(expected)


@LEISURELY
@given(sheets(3))
def test_alpha_of_a_label_is_that_of_the_label_against_the_rest(given: list[Triple]) -> None:
    found = {one.label: one.alpha.value for one in agreement(sheet_of(given), LABELS).labels}
    for label in LABELS:
        against = [(unit, reviewer, LABELS[said != label]) for unit, reviewer, said in given]
        assert found[label] == (None if (expected := oracle(against)) is None else pytest.approx(expected))


@LEISURELY
@given(sheets(2))
def test_kappa_of_a_pair_is_that_of_another_library(given: list[Triple]) -> None:
    sheet = sheet_of(given)
    both = [(said[0], said[1]) for said in sheet.values() if len(said) == 2]
    found = agreement(sheet, LABELS).pairs
    if not both:
        assert found == ()
        return
    assert found[0].num_items == len(both)
    tasks = [(found[0].kappa, LABELS), *((found[0].labels[label], [label]) for label in LABELS)]
    for kappa, labels in tasks:
        if len(labels) == 1:
            lefts, rights = ([said == labels[0] for said in side] for side in zip(*both, strict=True))
        else:
            lefts, rights = ([LABELS.index(said) for said in side] for side in zip(*both, strict=True))
        if len({*lefts, *rights}) == 1:
            assert (kappa.value, kappa.why) == (None, Why.ONE_ANSWER)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of tables that have no kappa, and of few answers
            assert kappa.value == pytest.approx(cohen_kappa_score(lefts, rights))


def kappa_of_shares(shares: Mapping[tuple[str, str], float]) -> float:
    names = {name for cell in shares for name in cell}
    agreed = sum(shares.get((name, name), 0) for name in names)
    chance = sum(
        sum(share for (left, _), share in shares.items() if left == name)
        * sum(share for (_, right), share in shares.items() if right == name)
        for name in names
    )
    return (agreed - chance) / (1 - chance)


@LEISURELY
@given(st.lists(st.integers(0, 30), min_size=9, max_size=9))
def test_the_error_of_kappa_is_that_of_the_delta_method(counts: list[int]) -> None:
    """Slopes taken by small steps, and the covariances of a multinomial: the same without the formula."""
    cells = table("a b c", counts[:3], counts[3:6], counts[6:])
    n = sum(cells.values())
    names = {name for cell in cells for name in cell}
    assume(n > 1 and len(names) > 1 and measures.kappa_of(cells) is not None)
    shares = {(one, other): cells.get((one, other), 0) / n for one in "abc" for other in "abc"}
    step = 1e-6
    slopes = {
        cell: (
            kappa_of_shares(shares | {cell: shares[cell] + step})
            - kappa_of_shares(shares | {cell: shares[cell] - step})
        )
        / (2 * step)
        for cell in shares
    }
    mean = sum(shares[cell] * slopes[cell] for cell in shares)
    variance = sum(shares[cell] * (slopes[cell] - mean) ** 2 for cell in shares) / n
    assert measures.kappa_error(cells) == pytest.approx(math.sqrt(variance), rel=1e-3, abs=1e-5)


# Intervals.


def answers(draw: random.Random, items: int, reviewers: int, sure: float = 0.75) -> list[Triple]:
    """Reviewers who see what an item is in `sure` of the cases, and guess else."""
    found: list[Triple] = []
    for item in range(items):
        truth = draw.choices(LABELS, (6, 2, 1, 2, 1))[0]
        found += [
            (item, reviewer, truth if draw.random() < sure else draw.choice(LABELS)) for reviewer in range(reviewers)
        ]
    return found


@pytest.mark.slow
def test_intervals_hold_what_they_are_of() -> None:
    """95 % intervals of 150 samples of 100 items (and of 15) hold the value of a large sample in about 95 % of them."""
    draw = random.Random(7)
    large = agreement(sheet_of(answers(draw, 60_000, 2)))
    true_alpha, true_kappa = large.alpha.value or 0, large.pairs[0].kappa.value or 0
    held = Counter[str]()
    for _ in range(150):
        few = Counter((said[0], said[1]) for said in sheet_of(answers(draw, 15, 2)).values())
        of_few = measures.kappa(few)
        held["few"] += of_few.low is None or of_few.low <= true_kappa <= (of_few.high or 0)
        sheet = sheet_of(answers(draw, 100, 2))
        cells = Counter((said[0], said[1]) for said in sheet.values())
        kappa = measures.kappa(cells)
        alpha, _ = measures.alpha_and_raw(Counter(tuple(sorted(said.values())) for said in sheet.values()))
        held["kappa"] += (kappa.low or 0) <= true_kappa <= (kappa.high or 0)
        held["alpha"] += (alpha.low or 0) <= true_alpha <= (alpha.high or 0)
    assert 0.88 <= held["kappa"] / 150 <= 0.99
    assert held["few"] / 150 >= 0.88
    assert 0.88 <= held["alpha"] / 150 <= 0.99


def test_the_same_answers_have_the_same_interval_in_whatever_order_they_come() -> None:
    given = answers(random.Random(3), 60, 3)
    first = alpha_of(given)
    random.Random(4).shuffle(given)
    assert alpha_of(given) == first
    assert first.low is not None
    assert first.low < (first.value or 0) < (first.high or 0)
    assert first.how is How.BOOTSTRAP


def test_full_agreement_on_few_items_is_not_certainty() -> None:
    found = agreement(sheet_of(triples(a="x x x y y y x y", b="x x x y y y x y")))
    for one in (found.alpha, found.raw, found.pairs[0].kappa):
        assert (one.value, one.high, one.how) == (1, 1, How.WILSON)
        assert one.low is not None
        assert one.low < 0.7
        assert one.is_small


@LEISURELY
@given(sheets(3))
def test_no_figure_is_anything_but_a_number_or_none(given: list[Triple]) -> None:
    found = agreement(sheet_of(given), LABELS)
    figures = [found.alpha, found.raw, *(pair.kappa for pair in found.pairs), *(pair.raw for pair in found.pairs)]
    figures += [one for pair in found.pairs for one in pair.labels.values()]
    figures += [one for label in found.labels for one in (label.alpha, label.raw, label.again)]
    figures += [one for rest in measures.against_rest(sheet_of(given)).values() for one in (rest.kappa, rest.raw)]
    for one in figures:
        assert (one.low is None) == (one.how is None) == (one.why is not None), "an interval, or why there is none"
        assert one.value is not None or one.low is None
        for number in (one.value, one.low, one.high):
            assert number is None or math.isfinite(number)
        if one.low is not None:
            assert one.high is not None
            assert one.value is not None
            assert one.low - 1e-9 <= one.value <= one.high + 1e-9 or one.how is How.BOOTSTRAP


# What cannot be told.


def test_nothing_is_said_of_items_that_one_person_labelled() -> None:
    found = agreement(sheet_of(triples(a="x y . .", b=". . x y")))
    assert (found.num_items, found.num_shared, found.pairs) == (4, 0, ())
    assert (found.alpha.value, found.alpha.why) == (None, Why.NO_ITEMS)
    assert (found.raw.value, found.raw.why) == (None, Why.NO_ITEMS)


def test_one_label_alone_leaves_nothing_to_agree_on() -> None:
    found = agreement(sheet_of(triples(a="x x x", b="x x x")), ("x", "z"))
    assert (found.alpha.value, found.alpha.why, found.alpha.n) == (None, Why.ONE_ANSWER, 3)
    assert found.raw.value == 1
    assert (found.pairs[0].kappa.value, found.pairs[0].kappa.why) == (None, Why.ONE_ANSWER)
    assert found.pairs[0].labels["z"].why is Why.ONE_ANSWER
    assert (found.labels[1].label, found.labels[1].again.why) == ("z", Why.NO_ITEMS)


def test_one_item_has_a_figure_and_no_interval() -> None:
    found = agreement(sheet_of(triples(a="x", b="y")))
    assert (found.alpha.value, found.alpha.low, found.alpha.why) == (0, None, Why.ONE_ITEM)
    assert found.pairs[0].kappa == Measure(value=0, n=1, why=Why.ONE_ITEM)


def test_a_reviewer_counts_once_an_item_with_the_first_answer() -> None:
    assert sheet_of([(1, "a", "x"), (1, "a", "y")]) == {1: {"a": "x"}}


# Pairs, the rest, predictions.


def test_pairs_tell_on_what_they_disagree() -> None:
    found = agreement(sheet_of(triples(a="x x y y", b="x y y y", c="x . . y")), ("x", "y"))
    by_names = {(pair.left, pair.right): pair for pair in found.pairs}
    assert set(by_names) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert by_names["a", "b"].table == {("x", "x"): 1, ("x", "y"): 1, ("y", "y"): 2}
    assert by_names["a", "b"].num_apart == 1
    assert by_names["a", "c"].num_items == 2


def test_of_many_reviewers_those_who_share_most_are_paired() -> None:
    given = [(item, reviewer, "x") for item in range(6) for reviewer in range(6) if item >= reviewer]
    found, num_left_out = measures.pairs(sheet_of(given), (), most=3)
    assert {(pair.left, pair.right) for pair in found} == {(0, 1), (0, 2), (1, 2)}
    assert num_left_out == 3


def test_a_reviewer_is_held_against_most_of_the_others() -> None:
    given = triples(a="x x y y", b="x x y x", c="x x y y", d="y y . .")
    found = measures.against_rest(sheet_of(given))
    assert found["d"].kappa.n == 2
    assert found["d"].raw.value == 0
    assert found["a"].raw.value == 1
    assert found["a"].num_split == 1, "of the last item the two others say different things"


def test_specific_agreement_is_that_of_dice_for_two() -> None:
    """Two reviewers say x of 3 and 2 items, both of 2: 2 * 2 / (3 + 2)."""
    found = agreement(sheet_of(triples(a="x x x y y y", b="x x y y y y")), ("x", "y"))
    assert found.labels[0].again.value == pytest.approx(4 / 5)
    assert found.labels[0].again.n == 3
    assert found.labels[1].again.value == pytest.approx(6 / 7)


def test_what_foretells_is_told_by_precision_recall_and_kappa() -> None:
    truth: dict[object, bool] = {number: number < 4 for number in range(10)}
    found = measures.predictions(truth, {"rule": [0, 1, 2, 8, 99, 8], "never": []})
    rule = found["rule"]
    assert (rule.hits, rule.false_alarms, rule.missed, rule.neither, rule.n) == (3, 1, 1, 5, 10)
    assert (rule.precision.value, rule.recall.value) == (0.75, 0.75)
    guesses = [number in (0, 1, 2, 8) for number in range(10)]
    assert rule.kappa.value == pytest.approx(cohen_kappa_score(guesses, list(truth.values())))
    assert (found["never"].precision.value, found["never"].precision.why) == (None, Why.NO_ITEMS)
    assert found["never"].kappa == Measure(value=0, n=10, why=Why.ONE_SIDED)


def test_of_few_items_the_formula_for_many_is_not_trusted() -> None:
    """3 of 4 agreed, half of them by chance: Wilson's interval of 3 of 4 is .301 to .954."""
    found = measures.kappa(table("x y", (2, 0), (1, 1)))
    assert found.how is How.WILSON
    chance = 0.5
    assert found.value == pytest.approx((0.75 - chance) / (1 - chance))
    assert found.low == pytest.approx((0.3006 - chance) / (1 - chance), abs=0.001)
    assert found.high == pytest.approx((0.9544 - chance) / (1 - chance), abs=0.001)


def test_most_say_nothing_where_they_are_split() -> None:
    assert measures.majority([]) is None
    assert measures.majority("xy") is None
    assert measures.majority("xyy") == "y"


@pytest.mark.slow
def test_time_grows_with_the_number_of_answers() -> None:
    draw = random.Random(1)
    small, large = answers(draw, 5_000, 3), answers(draw, 33_000, 3)

    def seconds(given: list[Triple]) -> float:
        begin = time.process_time()
        agreement(sheet_of(given), LABELS)
        return time.process_time() - begin

    seconds(small)
    assert seconds(large) < 6.6 * 2 * seconds(small) + 0.5
