"""Redis, broker and cache, is restarted, stopped, paused and full, at each step of a turn and for those who ask the API
(W3, W4). Tenants' own settings are in use: they are read with the help of the cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from celery import Celery

from quality.models import ToolCall, Turn
from quality.turns.faults import STEPS
from tenants.scope import tenant_scope
from tests.crash.house import (
    OWN_MODEL,
    Broker,
    Ledger,
    WorkerProcess,
    all_done,
    ask,
    check_invariants,
    is_answered,
    post_turn,
)
from tests.service import Service
from tests.settings.http_tools import definition
from tests.turns.conftest import Lab, eventually
from tests.turns.setups import CITY

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.redis]

type Start = Callable[..., WorkerProcess]
PAUSE_S = 30.0  # it is ended before
FAULTS = ["restarted", "stopped", "paused", "full"]


@contextmanager
def suffering(broker: Broker, fault: str) -> Iterator[None]:
    """Redis with this fault, until the block ends."""
    match fault:
        case "restarted":
            broker.restart()
        case "stopped":
            broker.stop()
        case "paused":
            broker.pause(PAUSE_S)
        case "full":
            broker.is_full()
    try:
        yield
    finally:
        match fault:
            case "stopped":
                broker.start()
            case "paused":
                broker.restart()  # CLIENT UNPAUSE would have to wait as well
            case "full":
                broker.is_full(False)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_step_of_a_turn_stops_nobody(
    lab: Lab, start: Start, broker: Broker, own_settings: dict[str, str], subtests: pytest.Subtests, fault: str
) -> None:
    worker, ledger = start(REDIS_URL=broker.url, **own_settings).is_ready(), Ledger()
    for step in STEPS:
        for tools in ("safe", "unsafe"):
            with subtests.test(step=step, tools=tools):
                worker.is_to(f"stop:{step}")
                num_calls = lab.tools.count()
                turn = lab.turn(OWN_MODEL, tools=tools)
                worker.stops()
                with suffering(broker, fault):
                    worker.goes_on()
                    is_answered(lab, turn, num_calls)
                check_invariants([lab.tenant], lab.tools, ledger)
    assert worker.process.poll() is None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_is_answered_and_its_turn_runs(
    lab: Lab, start: Start, broker: Broker, own_settings: dict[str, str], web: Service, api, fault: str
) -> None:
    token = api("turns:write").text
    worker = start(**own_settings).is_ready()
    post_turn(web, token, model=OWN_MODEL)
    with suffering(broker, fault):
        for _ in range(3):
            _, took_s = post_turn(web, token, model=OWN_MODEL)
            assert took_s < 3  # the bound that a caller is promised
        all_done(lab, 4)
    post_turn(web, token, model=OWN_MODEL)
    all_done(lab, 5)
    assert worker.process.poll() is None


def test_a_worker_outlives_restarts_of_the_broker(lab: Lab, start: Start, broker: Broker) -> None:
    """With sweeps far apart, so that only a message can wake it."""
    start(REDIS_URL=broker.url, TURN_SWEEP_S="600").is_ready()
    for number in range(5):
        broker.restart()
        turn = lab.turn(tools="unsafe")
        send_hint(broker, lab, turn)
        all_done(lab, number + 1)


def test_a_worker_that_met_a_full_broker_hears_messages_again(lab: Lab, start: Start, broker: Broker) -> None:
    """A message that cannot be noted as being worked on is no reason to end."""
    worker = start(REDIS_URL=broker.url, TURN_SWEEP_S="600").is_ready()
    worker.stop()
    send_hint(broker, lab, lab.turn(tools="unsafe"))
    broker.is_full()
    worker.goes_on()
    turn = lab.turn(tools="unsafe")
    broker.is_full(False)
    send_hint(broker, lab, turn)
    all_done(lab, 2)
    assert worker.process.poll() is None


def send_hint(broker: Broker, lab: Lab, turn: Turn) -> None:
    with Celery(broker=broker.url, set_as_current=False) as client:
        client.send_task("quality.tasks.run_turn", (lab.tenant.pk, turn.pk), queue="turns")


@pytest.mark.parametrize("fault", ["stopped", "paused", "full"])
def test_definitions_that_were_sent_in_stay_in_use_while_the_cache_is_away(
    lab: Lab, start: Start, broker: Broker, own_settings: dict[str, str], web: Service, api, fault: str
) -> None:
    token = api().text
    item = definition(name="sent_in", url=f"{lab.tools.url}/weather", parameters=CITY)
    start(**own_settings).is_ready()
    status, told = ask(web, "POST", "/api/tools", token, [item])
    assert (status, told.get("source")) == (200, "request"), told
    post_turn(web, token, model=OWN_MODEL, styleId="")  # no style: all tools are offered
    all_done(lab, 1)
    with suffering(broker, fault):
        refused = [("POST", [item | {"name": "later"}])]
        refused += [("DELETE", None)] if fault != "full" else []  # a full Redis takes things away
        for method, body in refused:
            status, problem = ask(web, method, "/api/tools", token, body)
            assert status == 503, problem
            assert "cache is away" in problem["detail"]
        post_turn(web, token, model=OWN_MODEL, styleId="")
        all_done(lab, 2)
        with tenant_scope(lab.tenant):
            toolsets = [call.toolset.tools for call in ToolCall.objects.select_related("toolset").order_by("pk")]
        assert "sent_in" in toolsets[0]
        assert toolsets == [toolsets[0]] * 2
    eventually(lambda: ask(web, "POST", "/api/tools", token, [item | {"name": "later"}])[0] == 200)
    made = 2

    def is_offered() -> bool:
        nonlocal made
        post_turn(web, token, model=OWN_MODEL, styleId="")
        made += 1
        all_done(lab, made)
        with tenant_scope(lab.tenant):
            return "later" in ToolCall.objects.select_related("toolset").latest("pk").toolset.tools

    eventually(is_offered)  # a worker leaves a cache that failed alone for some seconds
