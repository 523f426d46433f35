"""The exchange desk: sums are exact, and nobody talks the desk out of its checks."""

import asyncio
import itertools
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tools import Registry, Safety, ToolContext, ToolOutcome
from engine.tools.exchange import OrderState, Rate, Verification, exchange_tools
from tests.engine.memory_exchange import MemoryExchange

EUR = Rate("EUR", "USDT", Decimal("1.08337"), min_amount=Decimal(50), max_amount=Decimal(5_000))
SMALL = Rate("GEL", "EUR", Decimal("0.3321"), verify_from=Decimal(1_000))
OPEN = Rate("TRY", "EUR", Decimal("0.0201"), verify_from=None)
PAIR = {"give": "EUR", "get": "USDT", "amount": 250.5}

_keys = itertools.count()


def desk(*, verified: tuple[str, ...] = ("ana",)) -> MemoryExchange:
    return MemoryExchange(EUR, SMALL, OPEN, verified=verified)


def run(store: MemoryExchange, tool: str, *, customer: str = "ana", key: str = "", **arguments: Any) -> ToolOutcome:
    context = ToolContext(idempotency_key=key or f"key-{next(_keys)}")
    return asyncio.run(Registry(exchange_tools(store, customer)).run(tool, arguments, context))


def answer(*args: Any, **arguments: Any) -> dict[str, Any]:
    outcome = run(*args, **arguments)
    assert not outcome.is_error, outcome.text
    return json.loads(outcome.text)


def refused(*args: Any, **arguments: Any) -> str:
    outcome = run(*args, **arguments)
    assert outcome.is_error
    assert set(json.loads(outcome.text)) == {"error"}
    return outcome.error or ""


def test_the_desk_has_its_seven_tools_and_the_two_that_move_things_are_unsafe() -> None:
    tools = {tool.name: tool.safety for tool in exchange_tools(desk(), "ana")}

    assert set(tools) == {
        "compute_exchange_quote",
        "check_exchange_verification",
        "create_exchange_order",
        "fetch_exchange_requisites",
        "verify_exchange_payment",
        "issue_exchange_payout",
        "get_exchange_business_info",
    }
    assert {name for name, safety in tools.items() if safety is Safety.UNSAFE} == {
        "create_exchange_order",
        "issue_exchange_payout",
    }


def test_a_quote_is_exact_and_rounded_down() -> None:
    assert answer(desk(), "compute_exchange_quote", **PAIR) == {
        "give": "EUR",
        "give_amount": "250.5",
        "get": "USDT",
        "get_amount": "271.38",
        "rate": "1.08337",
        "verification_required": True,
    }
    assert answer(desk(), "compute_exchange_quote", give="eur ", get="usdt", amount="100.10")["get_amount"] == "108.44"


@given(st.decimals(min_value=50, max_value=5000, places=8))
def test_the_desk_never_pays_more_than_the_rate_says(amount: Decimal) -> None:
    quote = answer(desk(), "compute_exchange_quote", give="EUR", get="USDT", amount=str(amount))

    assert Decimal(quote["give_amount"]) == amount
    assert amount * EUR.rate - Decimal("0.01") < Decimal(quote["get_amount"]) <= amount * EUR.rate


@pytest.mark.parametrize(
    "amount",
    ["NaN", "Infinity", "-5", "0", "abc", "", "1e400", 1e308, "1.123456789", "1_000", -1, "١٠٠", ".5", float("nan")],
)
def test_what_is_no_sum_of_money_is_refused(amount: Any) -> None:
    assert refused(desk(), "compute_exchange_quote", give="EUR", get="USDT", amount=amount) in (
        "bad_amount",
        "out_of_limits",
    )


@pytest.mark.parametrize(("amount", "good"), [("49.99", False), ("50", True), ("5000", True), ("5000.01", False)])
def test_limits_belong_to_the_rate(amount: str, good: bool) -> None:
    outcome = run(desk(), "create_exchange_order", give="EUR", get="USDT", amount=amount)

    assert outcome.is_error != good
    assert good or outcome.error == "out_of_limits"


def test_a_pair_without_a_rate_is_not_offered() -> None:
    outcome = run(desk(), "compute_exchange_quote", give="USD", get="USDT", amount=100)

    assert outcome.error == "no_rate"
    assert "EUR to USDT" in outcome.text


@pytest.mark.parametrize("status", [Verification.NONE, Verification.PENDING, Verification.REJECTED])
def test_an_order_needs_a_verified_customer(status: Verification) -> None:
    store = desk(verified=())
    store.statuses["ana"] = status

    assert answer(store, "check_exchange_verification") == {"status": status, "verified": False}
    assert refused(store, "create_exchange_order", **PAIR) == "verification_required"
    assert store.orders == {}


def test_the_model_cannot_name_another_customer_or_claim_to_be_verified() -> None:
    store = desk(verified=("boris",))

    registry = Registry(exchange_tools(store, "ana"))

    for lie in ({"customer": "boris"}, {"verified": True}):
        outcome = asyncio.run(registry.run("create_exchange_order", PAIR | lie, ToolContext()))
        assert outcome.error == "invalid_arguments"
    assert store.orders == {}


def test_small_sums_and_open_pairs_go_without_verification_as_the_rate_says() -> None:
    store = desk(verified=())

    assert answer(store, "create_exchange_order", give="GEL", get="EUR", amount="999.99")["state"] == "created"
    assert refused(store, "create_exchange_order", give="GEL", get="EUR", amount="1000") == "verification_required"
    assert answer(store, "create_exchange_order", give="TRY", get="EUR", amount="900000")["state"] == "created"


def test_an_order_goes_from_payment_to_payout_once() -> None:
    store = desk()
    order = answer(store, "create_exchange_order", **PAIR)["order_id"]
    paid_to = answer(store, "fetch_exchange_requisites", order_id=order)
    assert (paid_to["pay"], paid_to["currency"], paid_to["to"]) == ("250.5", "EUR", {"iban": "BE68 5390 0754 7034"})
    assert answer(store, "verify_exchange_payment", order_id=order)["payment_received"] is False
    assert refused(store, "issue_exchange_payout", order_id=order, destination="TXyz1234") == "not_paid"

    store.received.add(order)
    assert answer(store, "verify_exchange_payment", order_id=order)["payment_received"] is True
    paid_out = answer(store, "issue_exchange_payout", order_id=order, destination="TXyz1234", key="once")
    assert paid_out["state"] == OrderState.PAID_OUT
    assert answer(store, "issue_exchange_payout", order_id=order, destination="TXyz1234", key="once") == paid_out
    assert refused(store, "issue_exchange_payout", order_id=order, destination="TXyz1234") == "wrong_state"
    assert refused(store, "fetch_exchange_requisites", order_id=order) == "wrong_state"
    assert store.payouts == [(order, "TXyz1234")]


def test_verification_is_asked_again_at_each_step() -> None:
    store = desk()
    order = answer(store, "create_exchange_order", **PAIR)["order_id"]
    store.received.add(order)
    store.statuses["ana"] = Verification.REJECTED

    assert refused(store, "fetch_exchange_requisites", order_id=order) == "verification_required"
    assert refused(store, "issue_exchange_payout", order_id=order, destination="TXyz1234") == "verification_required"
    assert store.payouts == []


def test_another_customers_order_does_not_exist() -> None:
    store = desk(verified=("ana", "boris"))
    order = answer(store, "create_exchange_order", **PAIR)["order_id"]

    for tool, more in (
        ("fetch_exchange_requisites", {}),
        ("verify_exchange_payment", {}),
        ("issue_exchange_payout", {"destination": "TXyz1234"}),
    ):
        mine = run(store, tool, customer="boris", order_id=order, **more)
        missing = run(store, tool, customer="boris", order_id="EX-999", **more)
        assert mine.error == "no_order"
        assert mine.text == missing.text


def test_a_repeated_key_makes_no_second_order() -> None:
    store = desk()
    first = answer(store, "create_exchange_order", key="k", **PAIR)

    assert answer(store, "create_exchange_order", key="k", **PAIR) == first
    assert len(store.orders) == 1


def test_the_desk_tells_its_hours_and_pairs() -> None:
    info = answer(desk(), "get_exchange_business_info")

    assert info["hours"] == "9 to 17"
    assert {"give": "GEL", "get": "EUR"} in info["pairs"]


def test_missing_requisites_are_told() -> None:
    store = desk()
    order = answer(store, "create_exchange_order", give="TRY", get="EUR", amount=100)["order_id"]

    assert refused(store, "fetch_exchange_requisites", order_id=order) == "no_requisites"
