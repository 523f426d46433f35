"""Replays are planned: what is asked is frozen, what cannot be is refused by the name of the member that is wrong."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from quality.improve import cases
from quality.models import ReplayCase, ReplaySample, ReplaySide
from quality.replay import plan, steps
from quality.replay.wanted import Budget, RunSettings, SideSpec, Wanted
from tenants import styles, tools
from tenants.models import AuditEvent, Membership, Role, Style, Tenant
from tenants.scope import tenant_scope
from tests.factories import TOOLS, ToolsetFactory
from tests.replay.lab import Lab, Models
from tests.settings.http_tools import definition
from tests.turns.conftest import eventually

TEXT = styles.StyleText("You are kind.", (("Hello?", "Hello!"),))


@contextmanager
def canary() -> Iterator[tuple[int, list[object]]]:
    """A port of loopback, and who opened a connection to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        opened: list[object] = []

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                opened.append(address)
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        port = server.getsockname()[1]
        yield port, opened
        socket.create_connection(("127.0.0.1", port)).close()
        eventually(lambda: bool(opened))  # it does see who comes
        server.shutdown(socket.SHUT_RDWR)


def style(lab: Lab, text: styles.StyleText = TEXT) -> None:
    with tenant_scope(lab.tenant):
        known = Style.objects.filter(style_id="kind").first()
        styles.save_style(style_id="kind", name="Kind", text=text, actor=lab.actor, pk=known.pk if known else None)


def refused(lab: Lab, wanted: Wanted) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as refusal:
        lab.begin(wanted)
    found: dict[str, list[str]] = refusal.value.message_dict
    return found


def test_what_is_asked_is_frozen_when_it_starts(lab: Lab, models: Models) -> None:
    lab.endpoint("right", parameters={"temperature": 0.5})
    style(lab)
    [case] = lab.cases(1)
    with tenant_scope(lab.tenant):
        toolset = ToolsetFactory()
    spec = SideSpec(model_label="right", style_id="kind", tools=toolset.sha256)
    replay = lab.begin(Wanted(sides=(spec,)))
    lab.endpoint("right", model="wrong", parameters={})
    style(lab, styles.StyleText("You are rude."))
    with tenant_scope(lab.tenant):
        expectation = case.expectation.replace("Zürich", "Paris")
        cases.edit(1, by=lab.actor, seen_version=1, expectation=expectation)
    assert lab.run(replay).exit_code == 0
    [asked] = models.asked
    assert (asked.model, asked.body["temperature"]) == ("right", 0.5)
    assert asked.body["messages"][0] == {"role": "system", "content": TEXT.system()}
    assert asked.body["tools"] == TOOLS
    with tenant_scope(lab.tenant):
        side = ReplaySide.objects.get(replay=replay)
        assert (side.style_version, side.tools_from, ReplayCase.objects.get().version) == (1, "stored", 1)
        assert "replay.started" in AuditEvent.objects.values_list("action", flat=True)
    old = lab.begin(Wanted(sides=(SideSpec(model_label="right", style_id="kind", style_version=1),)))
    with tenant_scope(lab.tenant):
        assert ReplaySide.objects.get(replay=old).system_prompt == TEXT.system()


@pytest.mark.parametrize("on_miss", ["stop", "fifo", "error", "fixed"])
def test_no_replay_ever_opens_a_connection_to_a_tool(lab: Lab, models: Models, settings: Any, on_miss: str) -> None:
    """The tool's address may be called by this tenant, and the model calls the tool: nobody does."""
    expectation = {"version": 1, "calls": {"mode": "contains", "steps": [{"tool": "get_weather"}]}, "reply": {}}
    expectation["reply"] = {"must": [{"contains": "fine"}]}
    lab.endpoint("right")
    lab.cases(2, expectation=json.dumps(expectation), result=None, stubs="[]")
    with canary() as (port, opened):
        settings.OUTBOUND_ALLOW_PORTS = [models.port, port]
        with tenant_scope(lab.tenant):
            tool = TOOLS[0]["function"] | {"url": f"http://127.0.0.1:{port}/weather", "method": "GET"}
            tools.save_tool(definition(**tool), actor=lab.actor)
        spec = SideSpec(model_label="right", tools="current")
        replay = lab.run(lab.begin(Wanted(sides=(spec, spec), settings=RunSettings(on_miss=on_miss, miss_result="{}"))))
        assert opened == []
    assert models.asked[0].body["tools"][0]["function"]["name"] == "get_weather"
    calls = [json.loads(sample.data)["cycles"][0] for sample in lab.samples(replay)]
    assert [call[0]["name"] for call in calls] == ["get_weather"] * 4


def test_cases_are_chosen_by_filter_or_by_name(lab: Lab) -> None:
    lab.cases(3, tags=["billing"])
    lab.cases(2)
    with tenant_scope(lab.tenant):
        cases.archive(2, by=lab.actor)
        chosen = {
            query: [case.number for case in plan.chosen_cases(lab.wanted(query=query))]
            for query in ("", "tag=billing", "tag=billing&status=all&cursor=x", "tool=get_weather&q=Z%C3%BCrich")
        }
        named = plan.chosen_cases(lab.wanted(cases=("REG-2", 4)))
    assert chosen == {
        "": [1, 3, 4, 5],
        "tag=billing": [1, 3],
        "tag=billing&status=all&cursor=x": [1, 3],
        "tool=get_weather&q=Z%C3%BCrich": [1, 3, 4, 5],
    }
    assert [case.number for case in named] == [2, 4]


@pytest.mark.parametrize(
    ("given", "path", "word"),
    [
        ({"sides": (SideSpec(model_label="gone"),)}, "sides.0.modelLabel", "Known: right, priced"),
        (
            {"sides": (SideSpec(model_label="right"), SideSpec(model_label="right", style_id="x"))},
            "sides.1.styleId",
            "x",
        ),
        ({"sides": (SideSpec(model_label="right", style_version=2),)}, "sides.0.styleVersion", "Name the style"),
        (
            {"sides": (SideSpec(model_label="right", style_id="kind", style_version=2),)},
            "sides.0.styleVersion",
            "newest is 1",
        ),
        ({"sides": (SideSpec(model_label="right", tools="ab"),)}, "sides.0.tools", "recorded, or current"),
        ({"sides": ()}, "sides", "length >= 1"),
        ({"settings": RunSettings(samples=0)}, "settings.samples", ">= 1"),
        ({"settings": RunSettings(samples=100)}, "settings.samples", "100,000"),
        ({"settings": RunSettings(budget=Budget(cost=1.0))}, "settings.budget.cost", "prices"),
        ({"settings": RunSettings(judge_label="gone")}, "settings.judgeLabel", "gone"),
        (
            {
                "sides": (SideSpec(model_label="priced"),),
                "settings": RunSettings(judge_label="right", budget=Budget(cost=1.0)),
            },
            "settings.budget.cost",
            "prices",
        ),
        ({"query": "colour=red"}, "query", "colour"),
        ({"query": "label=fine"}, "query", "label"),
        ({"query": "tag=none"}, "cases", "No active case"),
        ({"cases": ("REG-1", "REG-9")}, "cases", "REG-9"),
        ({"cases": ("first",)}, "cases", "first"),
        ({"baseline_replay_id": 4711}, "baselineReplayId", "4711"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], path: str, word: str
) -> None:
    lab.endpoint("right")
    lab.endpoint("priced", price_prompt=1)
    style(lab)
    lab.cases(1)
    if word == "100,000":
        monkeypatch.setattr(plan, "MAX_SAMPLES", 99)
        word = "more than 99"
    found = refused(lab, Wanted(**{"sides": (SideSpec(model_label="right"),), **given}))
    assert list(found) == [path]
    assert word in found[path][0]


def test_json_is_read_strictly_and_written_back() -> None:
    given = {
        "sides": [{"modelLabel": "a"}, {"modelLabel": "b", "styleId": "kind", "tools": "current"}],
        "cases": ["REG-1", 2],
        "settings": {"samples": 3, "seed": None, "budget": {"calls": 5}, "onMiss": "fifo"},
    }
    wanted = Wanted.from_json(given)
    assert wanted.sides[1] == SideSpec(model_label="b", style_id="kind", tools="current")
    assert (wanted.settings.seed, wanted.settings.budget.calls, wanted.settings.confirm) == (None, 5, True)
    assert Wanted.from_json(wanted.to_json()) == wanted
    for wrong, path in (
        ({"onMiss": "live"}, "settings.onMiss"),
        ({"concurrency": 33}, "settings.concurrency"),
        ({"budget": {"calls": "5"}}, "settings.budget.calls"),
        ({"sample": 1}, "settings"),
    ):
        with pytest.raises(ValidationError) as refusal:
            Wanted.from_json({**given, "settings": wrong})
        assert list(refusal.value.message_dict) == [path]


def test_a_tenant_has_so_many_replays_under_way(lab: Lab) -> None:
    lab.endpoint("right")
    lab.cases(1)
    started = [lab.start("right") for _ in range(plan.MAX_LIVE)]
    assert list(refused(lab, lab.wanted("right"))) == ["__all__"]
    with tenant_scope(lab.tenant):
        steps.cancel(started[0], actor=lab.actor)
    lab.start("right")


def test_an_estimate_learns_from_earlier_samples(lab: Lab) -> None:
    lab.endpoint("right", price_prompt=1_000_000.0)
    lab.cases(4)
    with tenant_scope(lab.tenant):
        guess = plan.estimate(lab.wanted("right", samples=3))
    assert (guess.cases, guess.samples, guess.requests) == (4, 12, 12)
    assert guess.basis == "from the length of the requests"
    assert guess.prompt_tokens > 0
    assert guess.cost == guess.prompt_tokens
    lab.ran("right", samples=2)
    with tenant_scope(lab.tenant):
        known = plan.estimate(lab.wanted("right", samples=3))
        one = ReplaySample.objects.all()[0]
    assert known.basis == "from 8 earlier samples of these cases and this model"
    assert (known.requests, known.prompt_tokens) == (12, one.prompt_tokens * 12)
    lab.endpoint("free", model="right")
    with tenant_scope(lab.tenant):
        both = plan.estimate(lab.wanted("right", "free", samples=3))
    assert [side.cost is None for side in both.sides] == [False, True]
    assert both.samples == 24


def test_another_tenant_is_not_asked_for(lab: Lab, other_tenant: Tenant, member: Callable[..., Membership]) -> None:
    other = Lab(other_tenant, member(Role.ADMIN, tenant=other_tenant).user, lab.models)
    lab.endpoint("right")
    lab.cases(2)
    earlier = lab.ran("right")
    assert list(refused(other, other.wanted("right"))) == ["sides.0.modelLabel"]
    other.endpoint("right")
    assert list(refused(other, other.wanted("right"))) == ["cases"]
    other.cases(1)
    with tenant_scope(other_tenant):
        assert plan.estimate(other.wanted("right")).basis == "from the length of the requests"
    assert list(refused(other, other.wanted("right", baseline_replay_id=earlier.pk))) == ["baselineReplayId"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"sides": [{"modelLabel": "a\0"}]}, "sides.0.modelLabel"),
        ({"sides": [{"modelLabel": "a", "tools": "\ud800"}]}, "sides.0.tools"),
        ({"sides": [{"modelLabel": "a"}], "settings": {"missResult": "\0"}}, "settings.missResult"),
        ({"sides": [{"modelLabel": "a"}], "cases": ["REG-1", "\0"]}, "cases.1"),
    ],
)
def test_what_no_row_can_hold_is_refused_by_name(given: dict[str, Any], name: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Wanted.from_json(given)
    assert list(refused.value.error_dict) == [name]
