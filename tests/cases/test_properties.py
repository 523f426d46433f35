"""What holds for all expectations and samples."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quality.cases.explain import CODES, explain
from quality.cases.judge import judge
from quality.cases.matchers import Scope, matcher
from quality.cases.pairing import Covering, maximum, one_to_one
from quality.cases.reading import Reader
from quality.cases.sample import Call, Ending, Sample, Served
from quality.cases.schema import check
from quality.cases.values import ABSENT, equal, exact, key_of, read_exact
from tests.corpus import corpus

LEISURELY = settings(deadline=None, max_examples=60)

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
bare = json_values.filter(lambda value: not isinstance(value, dict))


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda each: {"not": each}),
        inner.map(lambda each: {"each": each}),
        inner.map(lambda each: {"has": each}),
        several.map(lambda each: {"all": each}),
        several.map(lambda each: {"one_of": each}),
        several.map(lambda each: {"set": each}),
        several.map(lambda each: {"multiset": each}),
        st.dictionaries(st.text(max_size=2), inner, max_size=2).map(lambda each: {"object": {"fields": each}}),
    )


simple = st.one_of(
    bare,
    json_values.map(lambda value: {"equal": value}),
    st.integers(-5, 5).map(lambda value: {"gt": value}),
    st.integers(-5, 5).map(lambda value: {"number": {"of": value, "abs": 1}}),
    st.sampled_from(
        [
            {"present": True},
            {"absent": True},
            {"ignore": True},
            {"regex": "[a-z]*"},
            {"length": {"max": 2}},
            {"date": "today"},
            {"judge": {"rubric": "x"}},
            {"text": {"of": "a", "case": "fold"}},
            {"schema": {"type": "string"}},
        ]
    ),
)
matchers = st.recursive(simple, combined, max_leaves=5)


def ok(written: Any, value: Any) -> bool | None:
    reader = Reader()
    read = matcher(exact(written), reader, "")
    assert not reader.faults
    return read.match(value if value is ABSENT else exact(value), Scope()).ok


@LEISURELY
@given(matchers, json_values | st.just(ABSENT))
def test_not_not_is_nothing(written: Any, value: Any) -> None:
    assert ok({"not": {"not": written}}, value) is ok(written, value)
    answer = ok(written, value)
    assert ok({"not": written}, value) is (None if answer is None else not answer)


@LEISURELY
@given(json_values, json_values)
def test_equality_is_that_of_keys(left: Any, right: Any) -> None:
    left, right = exact(left), exact(right)
    assert equal(left, left)
    assert equal(left, right) is equal(right, left) is (key_of(left) == key_of(right))


@LEISURELY
@given(json_values)
def test_a_value_equals_what_its_json_text_says(value: Any) -> None:
    assert ok({"equal": value}, json.loads(json.dumps(value)))
    assert equal(exact(value), read_exact(json.dumps(value)))


graphs = st.integers(0, 5).flatmap(
    lambda right: st.tuples(
        st.lists(st.sets(st.integers(0, max(0, right - 1))) if right else st.just(set()), max_size=5), st.just(right)
    )
)


def best_by_trying_all(edges: list[list[int]], num_right: int) -> int:
    """The size of the largest matching, found by trying every assignment."""
    best = 0
    for chosen in itertools.product(*([*row, None] for row in edges)):
        used = [right for right in chosen if right is not None]
        if len(used) == len(set(used)):
            best = max(best, len(used))
    return best


@LEISURELY
@given(graphs)
def test_a_matching_is_as_large_as_can_be(graph: tuple[list[set[int]], int]) -> None:
    edges, num_right = [sorted(row) for row in graph[0]], graph[1]
    partners = maximum(edges, num_right)
    used = [right for right in partners if right is not None]
    assert len(used) == len(set(used)) == best_by_trying_all(edges, num_right)
    assert all(right in edges[left] for left, right in enumerate(partners) if right is not None)


@LEISURELY
@given(graphs, st.randoms(use_true_random=False))
def test_the_size_of_a_matching_does_not_hang_on_order(graph: tuple[list[set[int]], int], random: Any) -> None:
    edges, num_right = [sorted(row) for row in graph[0]], graph[1]
    mixed = [random.sample(row, len(row)) for row in random.sample(edges, len(edges))]
    assert sum(each is not None for each in maximum(edges, num_right)) == sum(
        each is not None for each in maximum(mixed, num_right)
    )


counts = st.tuples(st.integers(0, 2), st.integers(0, 2)).map(sorted)


@LEISURELY
@given(graphs, st.lists(counts, min_size=5, max_size=5))
def test_those_that_need_calls_come_first_and_then_as_many_as_can_be(
    graph: tuple[list[set[int]], int], bounds: list[list[int]]
) -> None:
    """Against a matching of copies: as many of each as it needs, and as many as it may have."""
    edges, num_right = [sorted(row) for row in graph[0]], graph[1]
    least, most = [low for low, _ in bounds[: len(edges)]], [high for _, high in bounds[: len(edges)]]
    found = Covering(edges, num_right, least, most)
    assert all(right in edges[left] for left, right in found.pairs)
    assert len({right for _, right in found.pairs}) == len(found.pairs)
    assert all(len(held) <= high for held, high in zip(found.held, most, strict=True))
    needed = [row for row, low in zip(edges, least, strict=True) for _ in range(low)]
    possible = [row for row, high in zip(edges, most, strict=True) for _ in range(high)]
    served = sum(min(len(held), low) for held, low in zip(found.held, least, strict=True))
    assert served == sum(each is not None for each in maximum(needed, num_right))
    assert found.is_met is (served == len(needed))
    assert len(found.pairs) == sum(each is not None for each in maximum(possible, num_right))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[True]], True),
        ([[None]], None),
        ([[False]], False),
        ([[True, None], [True, False]], None),
        ([[True], [True]], False),
    ],
)
def test_pairs_that_are_not_decided_leave_the_whole_open(table: list[list[bool | None]], expected: bool | None) -> None:
    assert one_to_one(len(table), len(table[0]), lambda left, right: table[left][right]) is expected


tools = st.sampled_from(["a", "b", "c", "a.b", "a*", ""])
steps = st.fixed_dictionaries(
    {"tool": st.sampled_from(["a", "b", "a*", "c"])},
    optional={
        "args": st.dictionaries(st.sampled_from(["x", "y", "/x/0"]), matchers, max_size=2),
        "extra_args": st.sampled_from(["allow", "forbid", {"ignore": ["y*"]}]),
        "count": st.sampled_from([{"min": 0}, {"max": 2}, {"min": 2, "max": 3}]),
    },
)
groups = st.lists(steps, min_size=1, max_size=2).map(lambda inner: {"parallel": True, "steps": inner})
whens = st.sampled_from([{"result": 0, "path": "", "present": True}, {"result": 0, "path": "/x", "equal": 1}])
modes = st.sampled_from(["exact", "any_order", "in_order", "contains", "only", "first"])
expectations = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "calls": st.fixed_dictionaries(
            {"mode": modes, "steps": st.lists(steps | groups, min_size=1, max_size=3)},
            optional={"parallel": st.booleans()},
        ),
    },
    optional={"limits": st.just({"max_calls": 2}), "null_is_absent": st.booleans()},
)
arguments = st.one_of(
    st.dictionaries(st.sampled_from(["x", "y", "z"]), json_values, max_size=2).map(json.dumps),
    st.text(max_size=4),
    st.none(),
)
made_calls = st.builds(
    Call,
    tools,
    arguments,
    st.none() | st.builds(Served, st.text(max_size=4), st.booleans()),
    st.sampled_from(["", "cut"]),
)
samples = st.builds(
    Sample,
    st.lists(st.lists(made_calls, max_size=3).map(tuple), max_size=3).map(tuple),
    st.none() | st.text(max_size=5),
    st.sampled_from(Ending),
)


@LEISURELY
@given(expectations, samples)
def test_reasons_are_stable_and_there_are_none_exactly_when_a_sample_passes(expectation: Any, sample: Sample) -> None:
    first, again = judge(expectation, sample), judge(json.loads(json.dumps(expectation)), sample)
    assert first == again
    assert first.passed is (not first.reasons)
    for reason in first.reasons:
        assert reason.code in CODES
        assert explain(reason)
        json.dumps(reason.as_dict())
    assert len(first.validity) == len(sample.calls) or expectation["calls"]["mode"] == "first"


@LEISURELY
@given(expectations, samples, st.randoms(use_true_random=False))
def test_where_order_means_nothing_the_verdict_does_not_hang_on_it(
    expectation: Any, sample: Sample, random: Any
) -> None:
    if expectation["calls"]["mode"] in ("exact", "in_order"):
        return
    wanted = expectation["calls"]["steps"]
    mixed = {**expectation, "calls": {**expectation["calls"], "steps": random.sample(wanted, len(wanted))}}
    cycles = tuple(tuple(random.sample(cycle, len(cycle))) for cycle in sample.cycles)
    assert judge(mixed, Sample(cycles, sample.reply, sample.ending)).verdict is judge(expectation, sample).verdict


@LEISURELY
@given(expectations, samples)
def test_what_is_decided_stays_decided(expectation: Any, sample: Sample) -> None:
    """A verdict on a part of a sample that is said to be decided is the verdict on the whole."""
    whole = judge(expectation, Sample(sample.cycles, sample.reply))
    for length in range(len(sample.cycles) + 1):
        part = judge(expectation, Sample(sample.cycles[:length], ending=Ending.RUNNING))
        if part.decided and part.passed:
            assert whole.passed
        elif part.decided and part.verdict != "error":
            assert whole.verdict in ("fail", "invalid_call")


@LEISURELY
@given(expectations, samples)
def test_exact_is_stricter_than_the_rest(expectation: Any, sample: Sample) -> None:
    def passes(mode: str) -> bool:
        return judge({**expectation, "calls": {**expectation["calls"], "mode": mode}}, sample).passed

    if passes("exact"):
        assert passes("any_order")
        assert passes("in_order")
    if passes("in_order") or passes("any_order"):
        assert passes("contains")


@LEISURELY
@given(st.one_of(json_values, expectations), st.one_of(json_values, st.text()), json_values)
def test_nothing_raises_whatever_it_is_given(expectation: Any, reply: Any, tools: Any) -> None:
    sample = Sample(((Call("a", reply if isinstance(reply, str | dict) else None, Served("{")),),), str(reply))
    judge(expectation, sample, tools=tools, now="today")
    judge(json.dumps(expectation), sample, tools=json.dumps(tools))


HOSTILE = [
    case for case in corpus.load("hostile_json.jsonl") if case["at"] in ("args", "result", "ingest") and "raw" in case
]
ANY = {
    "version": 1,
    "calls": {"mode": "exact", "steps": [{"tool": "t", "args": {"q": {"regex": ".*"}}, "extra_args": "allow"}]},
}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in HOSTILE])
def test_hostile_json_is_judged(case: dict[str, Any]) -> None:
    text = case["raw"]
    when = {"tool": "t", "when": {"result": 0, "path": "/q", "equal": 1}}
    two = {"version": 1, "calls": {"mode": "exact", "steps": [{"tool": "t", "extra_args": "allow"}, when]}}
    for expectation in (ANY, two, {"version": 1, "calls": {"mode": "none"}}, text):
        judgement = judge(expectation, Sample(((Call("t", text, Served(text)),),), text))
        json.dumps(judgement.as_dict(), ensure_ascii=False).encode()
        for reason in judgement.reasons:
            explain(reason).encode()


@pytest.mark.parametrize("odd", ["\ud800", "\udfff x"])
def test_what_no_utf_8_can_carry_stays_out_of_reports(odd: str) -> None:
    made = Call(odd, json.dumps({odd: odd}))
    for expectation in (
        {"version": 1, "calls": {"mode": "none"}},
        {"version": 1, "calls": {"mode": "first", "steps": [{"tool": odd, "args": {odd: "x"}}]}},
        {"version": 1, odd: 1, "calls": {"mode": odd}},
    ):
        judgement = judge(expectation, Sample(((made,),)), tools=[{"name": "t"}])
        json.dumps(judgement.as_dict(), ensure_ascii=False).encode()
        "".join(explain(reason) for reason in judgement.reasons).encode()
        for fault in check(expectation):
            f"{fault.path}{fault.message}".encode()
