import json

import pytest

from quality.ingest import gathering
from quality.ingest.items import Parsed
from quality.ingest.reader import ItemError
from tests.ingest.helpers import lines, outcomes, refusals, turns
from tests.ingest.span_files import genai_chat, genai_tool, otlp


def trace_id(number: int) -> str:
    return f"{number + 1:032x}"


def calls(found: list[Parsed | ItemError]) -> dict[str, tuple[str | None, int, int]]:
    return {
        call.external_id: (call.message, call.cycle, call.index)
        for item in found
        if isinstance(item, Parsed)
        for turn in item.turns
        for call in turn.calls
    }


def test_a_trace_spread_over_lines_is_one_however_they_are_mixed():
    spans = [
        span
        for n in range(20)
        for span in (
            genai_chat(1, "a", trace=trace_id(n)),
            genai_tool(2, call_id="a", trace=trace_id(n)),
            genai_chat(3, trace=trace_id(n)),
        )
    ]
    together = turns(otlp(*spans))
    assert len(together) == 20
    for mixed in (spans, spans[::-1], spans[::3] + spans[1::3] + spans[2::3]):
        apart = turns(lines(*(otlp(span) for span in mixed)))
        assert sorted(apart, key=repr) == sorted(together, key=repr)


def test_a_line_without_calls_of_ours_is_taken_and_tells_nothing():
    http = {**genai_tool(9, trace=trace_id(9)), "attributes": [{"key": "http.route", "value": {"stringValue": "/"}}]}
    assert outcomes(lines(otlp(genai_tool(1)), otlp(http), otlp()), "otel_genai") == outcomes(
        lines(otlp(genai_tool(1))), "otel_genai"
    )


def test_what_exceeds_the_bound_is_named_and_its_calls_are_kept(monkeypatch):
    monkeypatch.setattr(gathering, "MAX_HELD_BYTES", 20_000)
    early, late = genai_tool(2, call_id="a", trace=trace_id(0)), genai_tool(4, call_id="b", trace=trace_id(0))
    others = [genai_tool(1, trace=trace_id(n)) for n in range(1, 60)]
    start = genai_chat(1, "a", trace=trace_id(0))
    found = outcomes(
        lines(*(otlp(span) for span in (start, early, *others, genai_chat(3, "b", trace=trace_id(0)), late)))
    )
    (refused,) = [item for item in found if isinstance(item, ItemError)]
    assert (refused.line, refused.code) == (62, "trace_spread")
    assert trace_id(0) in refused.message
    kept = calls(found)
    assert len(kept) == 61
    assert kept[f"{trace_id(0)}:{2:016x}"] == ("reply-1", 0, 0)
    assert kept[f"{trace_id(0)}:{4:016x}"] == ("reply-3", 0, 0)
    assert len({turn.external_id for item in found if isinstance(item, Parsed) for turn in item.turns}) == 61


def test_a_trace_within_the_bound_waits_for_its_last_span(monkeypatch):
    monkeypatch.setattr(gathering, "MAX_HELD_BYTES", 40_000)
    others = [genai_tool(1, trace=trace_id(n)) for n in range(1, 20)]
    spans = [genai_tool(2, call_id="a", trace=trace_id(0)), *others, genai_chat(1, "a", trace=trace_id(0))]
    found = outcomes(lines(*(otlp(span) for span in spans)))
    assert calls(found)[f"{trace_id(0)}:{2:016x}"] == ("reply-1", 0, 0)
    assert not [item for item in found if isinstance(item, ItemError)]


@pytest.mark.parametrize(
    "broken", [{"traceId": "xyz"}, {"spanId": None}, {"attributes": {}}, {"name": 7 * [1]}, {"events": 1}]
)
def test_a_broken_span_is_named_and_loses_only_itself(broken):
    good = [genai_chat(1, "a"), genai_tool(2, call_id="a"), genai_tool(1, trace=trace_id(7))]
    data = otlp(*good[:1], {**genai_tool(3), **broken}, *good[1:])
    (refused,) = refusals(json.dumps(data).encode())
    assert (refused.line, refused.path) == (1, f"resourceSpans[0].scopeSpans[0].spans[1].{next(iter(broken))}")
    assert set(calls(outcomes(json.dumps(data).encode()))) == set(calls(outcomes(json.dumps(otlp(*good)).encode())))


def test_a_line_that_is_refused_casts_doubt_on_its_neighbours_alone():
    def trace(number: int) -> list[dict]:
        return [
            otlp(genai_chat(1, "a", trace=trace_id(number))),
            otlp(genai_tool(2, call_id="z", trace=trace_id(number))),
        ]

    good = [json.dumps(line) for number in range(4) for line in trace(number)]
    data = "\n".join([*good[:4], '{"resourceSpans": [', *good[4:]]).encode()
    found = calls(outcomes(data))
    assert [message for message, _, _ in found.values()] == ["reply-1", None, None, "reply-1"]


def test_after_a_cut_every_trace_may_go_on():
    data = lines(*(otlp(genai_tool(1, trace=trace_id(n))) for n in range(3)))
    whole, cut = turns(data), outcomes(data[:-5])
    assert {turn.conversation for turn in whole} == {trace_id(n) for n in range(3)}
    assert [turn.conversation for item in cut if isinstance(item, Parsed) for turn in item.turns] == [None, None]
    assert [item.line for item in cut if isinstance(item, ItemError)] == [3]
