"""A model server that is down is left alone for a while, by all processes; then one request tries it (W15)."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from engine.net import Guard, Policy
from engine.providers.openai import OpenAIModel
from engine.providers.protocol import Answer, ModelError, Request
from engine.providers.retry import RetryPolicy
from engine.providers.scripted import ScriptedServer
from quality.models import ModelReply, TurnState
from quality.turns import breaker
from quality.turns.breaker import Breaker, Guarded
from tenants import endpoints
from tenants.scope import tenant_scope
from tests.turns.conftest import Lab, eventually
from tests.turns.servers import scripted_model

DEAD, WELL = "status:503", "plain_text"


@pytest.fixture(params=["database", pytest.param("redis", marks=pytest.mark.redis)])
def shared(request: pytest.FixtureRequest, db: None, settings: Any) -> str:
    """The cache that processes share."""
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}}
    settings.MODEL_BREAKER_OPEN_S = 60.0
    return str(request.param)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_model() as server:
        yield server


@pytest.fixture
def place(tenant: Any) -> str:
    return f"breaker:{tenant.pk}:{time.time_ns()}"


class House:
    """Processes that ask one server: each has a breaker of its own, and they share the cache."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self._threads = ThreadPoolExecutor(3)

    def in_thread(self, work: Any, *args: Any) -> "asyncio.Future[Any]":
        def closing() -> Any:
            try:
                return work(*args)
            finally:
                connection.close()

        return asyncio.get_running_loop().run_in_executor(self._threads, closing)

    async def ask(self, process: Breaker, name: str) -> Answer:
        base_url = self.server.base_url
        async with Guard(Policy.local()).client(base_url) as client:
            model = OpenAIModel(base_url, name, client, retry=RetryPolicy(tries=1))
            request = Request([{"role": "user", "content": "Hello"}], [], time.monotonic() + 30)
            return await Guarded(model, process, self.in_thread).answer(request)

    async def codes(self, process: Breaker, name: str, number: int) -> list[str]:
        """How requests ended that were made one after another: "" is an answer."""
        return [await self._code(process, name) for _ in range(number)]

    async def at_once(self, processes: list[Breaker], name: str) -> list[str]:
        return list(await asyncio.gather(*(self._code(process, name) for process in processes)))

    async def _code(self, process: Breaker, name: str) -> str:
        try:
            await self.ask(process, name)
        except ModelError as error:
            return error.code
        return ""

    def run(self, work: Any) -> Any:
        return asyncio.run(work)

    @property
    def num_asked(self) -> int:
        return len(self.server.asked)


@pytest.fixture
def house(server: ScriptedServer) -> House:
    return House(server)


def its_time_comes(process: Breaker) -> None:
    """The pause is over: what is shared says so, and this process looks again."""
    place, standing = process._place, breaker._read([process._place])[process._place]
    text = f"{time.time() - 1}|{standing.num_failures}|{standing.num_opened}"
    breaker.cache.set(f"{place}:open", text)
    process._looked_at = float("-inf")


def test_after_five_failures_the_server_is_asked_no_more(shared: str, house: House, place: str) -> None:
    one = Breaker(place)
    assert house.run(house.codes(one, DEAD, 8)) == ["http_error"] * 5 + ["paused"] * 3
    assert house.num_asked == 5
    assert one.standing.num_failures == 5


def test_other_processes_leave_it_alone_too(shared: str, house: House, place: str) -> None:
    house.run(house.codes(Breaker(place), DEAD, 5))
    assert house.run(house.codes(Breaker(place), WELL, 2)) == ["paused"] * 2
    assert house.num_asked == 5


def test_failures_of_several_processes_count_together(shared: str, house: House, place: str) -> None:
    one, two = Breaker(place), Breaker(place)
    house.run(house.codes(one, DEAD, 3))
    assert house.run(house.codes(two, DEAD, 3)) == ["http_error", "http_error", "paused"]


def test_an_answer_between_them_begins_the_count_anew(shared: str, house: House, place: str) -> None:
    one = Breaker(place)
    for _ in range(3):
        house.run(house.codes(one, DEAD, 4))
        assert house.run(house.codes(one, WELL, 1)) == [""]


@pytest.mark.parametrize("script", ["status:400", "rate_limited:0", "html", "no_choices"])
def test_a_server_that_answers_is_not_down(shared: str, house: House, place: str, script: str) -> None:
    one = Breaker(place)
    assert "paused" not in house.run(house.codes(one, script, 7))
    assert one.standing == breaker.CLOSED


def test_on_recovery_exactly_one_request_tries_it(shared: str, house: House, place: str) -> None:
    processes = [Breaker(place) for _ in range(4)]
    house.run(house.codes(processes[0], DEAD, 5))
    for process in processes:
        its_time_comes(process)
    codes = house.run(house.at_once(processes * 5, "slow_first_token:2"))
    assert (codes.count(""), codes.count("paused")) == (1, 19)
    assert house.num_asked == 6
    for process in processes:
        process._looked_at = float("-inf")
    assert house.run(house.at_once(processes, WELL)) == [""] * 4


def test_a_try_that_fails_pauses_it_for_twice_as_long(shared: str, house: House, place: str) -> None:
    one = Breaker(place)
    house.run(house.codes(one, DEAD, 5))
    first_s = one.standing.until - time.time()
    its_time_comes(one)
    assert house.run(house.codes(one, DEAD, 2)) == ["http_error", "paused"]
    assert one.standing.num_opened == 2
    assert one.standing.until - time.time() > first_s + 30  # of 60 s and 120 s


def test_a_try_that_was_called_off_leaves_it_to_the_next(shared: str, house: House, place: str) -> None:
    one = Breaker(place)
    house.run(house.codes(one, DEAD, 5))
    its_time_comes(one)

    async def called_off() -> None:
        trying = asyncio.create_task(house.ask(one, "slow_first_token:20"))
        while house.num_asked < 6:
            await asyncio.sleep(0.01)
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)

    house.run(called_off())
    eventually(lambda: house.run(house.codes(one, WELL, 1)) == [""])  # once it has been said that the try is over


def test_somebody_who_saw_it_answer_ends_the_pause(
    shared: str, house: House, tenant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "_place", lambda *server: f"breaker:{server[0]}:close")
    one = Breaker(f"breaker:{tenant.pk}:close")
    house.run(house.codes(one, DEAD, 5))
    server = (tenant.pk, house.server.base_url, WELL)
    assert breaker.standings({"m": server})["m"].is_paused
    breaker.close(*server)
    assert breaker.standings({"m": server})["m"] == breaker.CLOSED
    one._looked_at = float("-inf")
    assert house.run(house.codes(one, WELL, 1)) == [""]


def test_a_cache_that_is_away_is_no_fault(house: House, place: str, settings: Any, db: None) -> None:
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
    }
    one = Breaker(place)
    assert house.run(house.codes(one, WELL, 2)) == ["", ""]
    assert house.run(house.codes(one, DEAD, 7)) == ["http_error"] * 5 + ["paused"] * 2  # by what it sees itself
    assert breaker.standings({"m": (1, house.server.base_url, WELL)})["m"] == breaker.CLOSED


def test_turns_of_a_dead_model_fail_at_once_and_say_why(lab: Lab, settings: Any) -> None:
    settings.MODEL_BREAKER_FAILURES, settings.MODEL_BREAKER_OPEN_S = 2, 600.0
    worker = lab.worker()
    for _ in range(2):
        assert lab.rests(lab.turn("hung_up", "")).turn.end_reason == "provider_error"
    num_asked = len(lab.model.asked)
    turn = lab.turn("hung_up", "")
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == (TurnState.FAILED, "provider_error")
    assert "paused until" in run.error
    assert "failed 2 times in a row" in run.error
    assert len(lab.model.asked) == num_asked
    with tenant_scope(lab.tenant):
        assert ModelReply.objects.get(turn=turn).error_code == breaker.CODE
    assert lab.rests(lab.turn("plain_text", "")).state == TurnState.DONE  # another model of the same tenant
    worker.stop(0.2)


def test_the_models_page_tells_of_a_pause_and_a_test_ends_it(lab: Lab, settings: Any, member: Any, client: Any) -> None:
    settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
    settings.OUTBOUND_ALLOW_PORTS = [int(lab.model.base_url.split(":")[2].split("/")[0])]
    admin = member("admin").user
    with tenant_scope(lab.tenant):
        data = endpoints.EndpointData(label="fast", base_url=lab.model.base_url, model="one_call,plain_text")
        row = endpoints.save_endpoint(data, actor=admin)
    one = breaker.breaker_of(lab.tenant.pk, row.base_url, row.model)
    for _ in range(5):
        one.failed(was_try=False)
    client.force_login(admin)
    page = client.get("/t/acme/models/").text
    assert "paused after 5 failures</span> until" in page
    assert "Try now" in page
    client.post(f"/t/acme/models/{row.pk}/test/")
    page = client.get("/t/acme/models/").text
    assert "paused after" not in page
    assert not one.standing.is_open


def test_the_api_tells_of_a_pause(lab: Lab, api: Any) -> None:
    told = api()
    with tenant_scope(lab.tenant):
        data = endpoints.EndpointData(label="fast", base_url="https://llm.example.com/v1", model="m")
        row = endpoints.save_endpoint(data, actor=told.user)
    (model,) = told.get("/api/admin/models").json()["models"]
    assert (model["numFailures"], model["pausedUntil"]) == (0, None)
    one = breaker.breaker_of(lab.tenant.pk, row.base_url, row.model)
    for _ in range(6):
        one.failed(was_try=False)
    (model,) = told.get("/api/admin/models").json()["models"]
    assert model["numFailures"] == 6
    assert model["pausedUntil"].endswith("Z")
