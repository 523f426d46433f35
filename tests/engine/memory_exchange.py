"""An exchange desk's books in memory, as exact as a real one about states and repeated keys."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from engine.tools.exchange import DeskError, Order, OrderState, Rate, Verification


class MemoryExchange:
    def __init__(self, *rates: Rate, verified: Sequence[str] = ()) -> None:
        self.all_rates = list(rates)
        self.statuses = dict.fromkeys(verified, Verification.VERIFIED)
        self.orders: dict[str, tuple[str, Order]] = {}
        self.received: set[str] = set()
        self.payouts: list[tuple[str, str]] = []
        self._by_key: dict[str, str] = {}

    async def business_info(self) -> Mapping[str, Any]:
        return {"hours": "9 to 17"}

    async def rates(self) -> Sequence[Rate]:
        return self.all_rates

    async def verification(self, customer: str) -> Verification:
        return self.statuses.get(customer, Verification.NONE)

    async def create_order(
        self, customer: str, rate: Rate, give_amount: Decimal, get_amount: Decimal, idempotency_key: str
    ) -> Order:
        if known := self._by_key.get(idempotency_key):
            return self.orders[known][1]
        number = f"EX-{len(self.orders) + 1}"
        order = Order(number, rate.give, rate.get, give_amount, get_amount, rate.needs_verification(give_amount))
        self.orders[number] = (customer, order)
        self._by_key[idempotency_key] = number
        return order

    async def order(self, customer: str, order_id: str) -> Order | None:
        owner, order = self.orders.get(order_id, ("", None))
        return order if owner == customer else None

    async def requisites(self, order: Order) -> Mapping[str, Any] | None:
        return {"iban": "BE68 5390 0754 7034"} if order.give == "EUR" else None

    async def payment_received(self, order: Order) -> bool:
        if order.id in self.received and order.state is OrderState.CREATED:
            self._move(order.id, OrderState.PAID)
        return order.id in self.received

    async def pay_out(self, customer: str, order: Order, destination: str, idempotency_key: str) -> Order:
        current = self.orders[order.id][1]
        if idempotency_key in self._by_key:
            return current
        if current.state is not OrderState.PAID:
            raise DeskError("wrong_state", f"order {order.id} is {current.state}")
        self._by_key[idempotency_key] = order.id
        self.payouts.append((order.id, destination))
        return self._move(order.id, OrderState.PAID_OUT)

    def _move(self, order_id: str, state: OrderState) -> Order:
        owner, order = self.orders[order_id]
        self.orders[order_id] = (owner, replace(order, state=state))
        return self.orders[order_id][1]
