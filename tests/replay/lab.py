"""Cases of a tenant, and a model server whose models answer as they are called: right, wrong, flaky, odd. A parrot says
its key back."""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.providers import behaviours
from engine.providers.behaviours import Ask, Line
from engine.providers.scripted import ScriptedServer
from engine.providers.wire import Completion
from quality.models import LIVE_REPLAYS, Case, Replay, ReplayCase, ReplaySample, ReplayState
from quality.replay import plan
from quality.replay.run import run_replay
from quality.replay.wanted import RunSettings, SideSpec, Wanted
from tenants import endpoints
from tenants.models import ModelEndpoint, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import CaseFactory
from tests.turns.conftest import eventually

QUESTION = "What is the weather in Zürich?"
CITY = {
    "right": lambda seed: "Zürich",
    "wrong": lambda seed: "Zurich",
    "flaky": lambda seed: "Zürich" if seed % 2 else "Zurich",
    "odd": lambda seed: "Z\0rich\ud800",
}


@dataclass(frozen=True)
class Asked:
    """One request for a sample. Of one sample the seed is always the same: `place` names it."""

    model: str
    case: int
    seed: int
    key: str
    body: Mapping[str, Any]

    @property
    def place(self) -> tuple[str, int, int]:
        return self.model, self.case, self.seed


class Models:
    """A model server. While `gate` is not set nobody is answered; `delay_s` is added to each answer. `broken` are
    numbers of cases that it answers with status 400."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.gate = threading.Event()
        self.gate.set()
        self.delay_s = 0.0
        self.broken: set[int] = set()
        self.server = ScriptedServer([self._answer] * 50_000)

    @property
    def port(self) -> int:
        return int(self.server.base_url.split(":")[2].split("/")[0])

    @property
    def places(self) -> Counter[tuple[str, int, int]]:
        return Counter(asked.place for asked in self.asked)

    async def _answer(self, ask: Ask, line: Line) -> None:
        model, key = str(ask.body["model"]), ask.headers.get("authorization", "")
        text = next(message["content"] for message in ask.messages if message["role"] == "user")
        found = re.search(r"#(\d+)", text)
        case, seed = int(found[1]) if found else 0, int(ask.body.get("seed", 0))
        self.asked.append(Asked(model, case, seed, key, ask.body))
        while not self.gate.is_set():
            await asyncio.sleep(0.02)
        await asyncio.sleep(self.delay_s)
        if case in self.broken:
            await line.whole(400, {"error": {"message": "this server knows no such parameter"}})
            return
        await behaviours.send(ask, line, self._said(ask, model, seed))

    def _said(self, ask: Ask, model: str, seed: int) -> Completion:
        if model == "judge":
            return Completion('{"passed": true, "rationale": "It does."}')
        if model == "parrot":
            city = ask.headers["authorization"].removeprefix("Bearer ")
            return Completion(calls=(("get_weather", json.dumps({"city": city})),))
        if any(message["role"] == "tool" for message in ask.messages):
            return Completion("It is fine.")
        return Completion(calls=(("get_weather", json.dumps({"city": CITY[model.partition("-")[0]](seed)})),))

    @contextmanager
    def serving(self) -> Iterator["Models"]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(), loop).result(30)
        try:
            yield self
        finally:
            self.gate.set()
            asyncio.run_coroutine_threadsafe(self.server.stop(), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(30)
            loop.close()


class Lab:
    """One tenant with cases and endpoints."""

    def __init__(self, tenant: Tenant, actor: User, models: Models) -> None:
        self.tenant, self.actor, self.models = tenant, actor, models

    def endpoint(self, label: str = "right", *, model: str = "", **fields: Any) -> ModelEndpoint:
        given = {"base_url": self.models.server.base_url, "key": f"sk-{self.tenant.slug}-4711", **fields}
        with tenant_scope(self.tenant):
            known = ModelEndpoint.objects.filter(label=label).first()
            data = endpoints.EndpointData(label=label, model=model or label, **given)
            return endpoints.save_endpoint(data, actor=None, pk=known.pk if known else None)

    def cases(self, number: int = 3, **fields: Any) -> list[Case]:
        """Each asks with a number of its own, by which the model server tells them apart."""
        with tenant_scope(self.tenant):
            first = Case.objects.count() + 1
            return [
                CaseFactory(
                    number=each,
                    messages=json.dumps([{"role": "user", "content": f"{QUESTION} #{each}"}], ensure_ascii=False),
                    **fields,
                )
                for each in range(first, first + number)
            ]

    def wanted(self, *labels: str, **settings: Any) -> Wanted:
        sides = tuple(SideSpec(model_label=label) for label in labels or ("right",))
        more = {
            name: settings.pop(name) for name in ("cases", "query", "baseline_replay_id", "name") if name in settings
        }
        return Wanted(sides=sides, settings=RunSettings(**settings), **more)

    def start(self, *labels: str, **settings: Any) -> Replay:
        return self.begin(self.wanted(*labels, **settings))

    def begin(self, wanted: Wanted) -> Replay:
        with tenant_scope(self.tenant):
            return plan.start(wanted, actor=self.actor)

    def run(self, replay: Replay) -> Replay:
        """All slices, as a worker would take them."""
        while self.fresh(replay).state in (ReplayState.QUEUED, ReplayState.RUNNING):
            assert run_replay(replay.pk, tenant_id=self.tenant.pk) is not None
        return self.fresh(replay)

    def ran(self, *labels: str, **settings: Any) -> Replay:
        return self.run(self.start(*labels, **settings))

    def fresh(self, replay: Replay) -> Replay:
        with tenant_scope(self.tenant):
            found: Replay = Replay.objects.get(pk=replay.pk)
            return found

    def rows(self, replay: Replay) -> list[ReplayCase]:
        with tenant_scope(self.tenant):
            return list(ReplayCase.objects.filter(replay=replay).order_by("number"))

    def samples(self, replay: Replay, **fields: Any) -> list[ReplaySample]:
        with tenant_scope(self.tenant):
            found = ReplaySample.objects.filter(replay=replay, **fields)
            return list(found.order_by("replay_case__number", "side", "index").select_related("replay_case"))

    def until(self, replay: Replay, *states: ReplayState, within_s: float = 90.0) -> Replay:
        eventually(lambda: self.fresh(replay).state in states, within_s)
        return self.fresh(replay)

    def rests(self, replay: Replay, within_s: float = 90.0) -> Replay:
        eventually(lambda: self.fresh(replay).state not in LIVE_REPLAYS, within_s)
        return self.fresh(replay)
