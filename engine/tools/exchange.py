"""The exchange desk: quotes, orders and payouts of one customer, with the checks where no prompt can talk them away.

The customer is fixed when the tools are made, not named by the model. Who must be verified is asked of the store each
time something of value would be shown or moved: creating an order, showing where to pay, paying out.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from enum import StrEnum
from typing import Any, Protocol

from engine.errors import EngineError
from engine.tools.base import Arguments, FunctionTool, Safety, ToolContext, ToolOutcome, succeeded, told_in_json

MAX_AMOUNT = Decimal(10) ** 15

_AMOUNT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,8})?")  # the finest currency in use has eight digits after the point


class Verification(StrEnum):
    NONE = "none"
    PENDING = "pending"
    VERIFIED = "verified"
    REJECTED = "rejected"


class OrderState(StrEnum):
    CREATED = "created"
    PAID = "paid"
    PAID_OUT = "paid_out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Rate:
    """One unit of `give` buys `rate` of `get`, paid out with `get_digits` after the point.

    Amounts are in `give`. From `verify_from` on the customer must be verified: 0 is always, None never.
    """

    give: str
    get: str
    rate: Decimal
    min_amount: Decimal = Decimal(0)
    max_amount: Decimal = MAX_AMOUNT
    verify_from: Decimal | None = Decimal(0)
    get_digits: int = 2

    def needs_verification(self, amount: Decimal) -> bool:
        return self.verify_from is not None and amount >= self.verify_from


@dataclass(frozen=True, slots=True)
class Order:
    id: str
    give: str
    get: str
    give_amount: Decimal
    get_amount: Decimal
    needs_verification: bool
    state: OrderState = OrderState.CREATED


class ExchangeStore(Protocol):
    """Where the desk keeps things. Each order method sees the orders of that customer only.

    `idempotency_key`: the same key again gives the first outcome again and does nothing more. `pay_out` moves an order
    from paid to paid out in one step, and raises `DeskError` if it is in another state by then.
    """

    async def business_info(self) -> Mapping[str, Any]: ...
    async def rates(self) -> Sequence[Rate]: ...
    async def verification(self, customer: str) -> Verification: ...
    async def create_order(
        self, customer: str, rate: Rate, give_amount: Decimal, get_amount: Decimal, idempotency_key: str
    ) -> Order: ...
    async def order(self, customer: str, order_id: str) -> Order | None: ...
    async def requisites(self, order: Order) -> Mapping[str, Any] | None: ...
    async def payment_received(self, order: Order) -> bool:
        """Whether the whole amount has come in; a store that learns so here also marks the order as paid."""
        ...

    async def pay_out(self, customer: str, order: Order, destination: str, idempotency_key: str) -> Order: ...


class DeskError(EngineError):
    """What the desk does not do, in words for the model. `code` is for lists and hints."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Desk:
    """The desk as one customer stands at it. Each method gives what the model reads, or raises `DeskError`."""

    def __init__(self, store: ExchangeStore, customer: str) -> None:
        self._store = store
        self._customer = customer

    async def business_info(self, _arguments: Arguments, _context: ToolContext) -> Mapping[str, Any]:
        info = await self._store.business_info()
        return {**info, "pairs": [{"give": rate.give, "get": rate.get} for rate in await self._store.rates()]}

    async def quote(self, arguments: Arguments, _context: ToolContext) -> Mapping[str, Any]:
        rate, amount = await self._priced(arguments)
        return {
            "give": rate.give,
            "give_amount": _plain(amount),
            "get": rate.get,
            "get_amount": _plain(_converted(rate, amount)),
            "rate": _plain(rate.rate),
            "verification_required": rate.needs_verification(amount),
        }

    async def verification(self, _arguments: Arguments, _context: ToolContext) -> Mapping[str, Any]:
        status = await self._store.verification(self._customer)
        return {"status": status, "verified": status is Verification.VERIFIED}

    async def create_order(self, arguments: Arguments, context: ToolContext) -> Mapping[str, Any]:
        rate, amount = await self._priced(arguments)
        if rate.needs_verification(amount):
            await self._require_verified()
        get_amount = _converted(rate, amount)
        key = context.idempotency_key
        return _shown(await self._store.create_order(self._customer, rate, amount, get_amount, key))

    async def requisites(self, arguments: Arguments, _context: ToolContext) -> Mapping[str, Any]:
        order = await self._gated_order(arguments)
        if order.state is not OrderState.CREATED:
            raise DeskError("wrong_state", f"order {order.id} is {order.state}; there is nothing left to pay")
        requisites = await self._store.requisites(order)
        if requisites is None:
            raise DeskError("no_requisites", f"there are no payment details for {order.give} at the moment")
        return {"order_id": order.id, "pay": _plain(order.give_amount), "currency": order.give, "to": dict(requisites)}

    async def verify_payment(self, arguments: Arguments, _context: ToolContext) -> Mapping[str, Any]:
        order = await self._own_order(arguments)
        return {"order_id": order.id, "payment_received": await self._store.payment_received(order)}

    async def pay_out(self, arguments: Arguments, context: ToolContext) -> Mapping[str, Any]:
        order = await self._gated_order(arguments)
        if order.state is OrderState.CANCELLED:
            raise DeskError("wrong_state", f"order {order.id} is cancelled")
        if not await self._store.payment_received(order):
            raise DeskError("not_paid", f"the payment for order {order.id} has not been received; nothing is paid out")
        destination = arguments["destination"]
        return _shown(await self._store.pay_out(self._customer, order, destination, context.idempotency_key))

    async def _priced(self, arguments: Arguments) -> tuple[Rate, Decimal]:
        give, get = arguments["give"].strip().upper(), arguments["get"].strip().upper()
        rates = await self._store.rates()
        rate = next((rate for rate in rates if (rate.give, rate.get) == (give, get)), None)
        if rate is None:
            offered = ", ".join(f"{rate.give} to {rate.get}" for rate in rates) or "nothing"
            raise DeskError("no_rate", f"{give} to {get} is not offered; on offer: {offered}")
        amount = _amount(arguments["amount"])
        if not rate.min_amount <= amount <= rate.max_amount:
            low, high = _plain(rate.min_amount), _plain(rate.max_amount)
            raise DeskError("out_of_limits", f"the amount must be between {low} and {high} {give}")
        return rate, amount

    async def _own_order(self, arguments: Arguments) -> Order:
        order = await self._store.order(self._customer, arguments["order_id"])
        if order is None:
            raise DeskError("no_order", "there is no such order of this customer")
        return order

    async def _gated_order(self, arguments: Arguments) -> Order:
        order = await self._own_order(arguments)
        if order.needs_verification:
            await self._require_verified()
        return order

    async def _require_verified(self) -> None:
        status = await self._store.verification(self._customer)
        if status is not Verification.VERIFIED:
            raise DeskError("verification_required", f"the customer must be verified first; the status is {status}")


def _amount(value: str | float) -> Decimal:
    """An exact amount: models send numbers and texts. Floats go by their shortest spelling."""
    if not isinstance(value, str) and not abs(value) <= int(MAX_AMOUNT):  # NaN is not below anything
        raise DeskError("bad_amount", "the amount is too large")
    text = str(value).strip()
    if not _AMOUNT.fullmatch(text):
        raise DeskError(
            "bad_amount", "the amount must be a plain number with up to 8 digits after the point, like 250.50"
        )
    amount = Decimal(text)
    if not amount:
        raise DeskError("bad_amount", "the amount must be above zero")
    return amount


def _converted(rate: Rate, amount: Decimal) -> Decimal:
    """What the customer gets, rounded down: the desk never pays out more than the rate says."""
    return (amount * rate.rate).quantize(Decimal(1).scaleb(-rate.get_digits), ROUND_DOWN)


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _shown(order: Order) -> Mapping[str, Any]:
    return {
        "order_id": order.id,
        "state": order.state,
        "give": order.give,
        "give_amount": _plain(order.give_amount),
        "get": order.get,
        "get_amount": _plain(order.get_amount),
    }


_PAIR = {
    "give": {"type": "string", "description": "Currency that the customer gives, like EUR."},
    "get": {"type": "string", "description": "Currency that the customer gets, like USDT."},
    "amount": {"type": ["number", "string"], "description": "Amount that the customer gives, like 250.50."},
}
_ORDER = {"order_id": {"type": "string", "minLength": 1}}
_PAYOUT = _ORDER | {
    "destination": {
        "type": "string",
        "minLength": 4,
        "maxLength": 200,
        "description": "Account or wallet to pay to, exactly as the customer wrote it.",
    }
}

type _Step = Callable[[Desk, Arguments, ToolContext], Awaitable[Mapping[str, Any]]]

_TOOLS: tuple[tuple[str, str, Mapping[str, Any], Safety, _Step], ...] = (
    (
        "get_exchange_business_info",
        "Opening hours, address, rules and the currency pairs of the exchange desk.",
        {},
        Safety.SAFE,
        Desk.business_info,
    ),
    (
        "compute_exchange_quote",
        "What the customer gets for an amount at the current rate. Creates nothing.",
        _PAIR,
        Safety.SAFE,
        Desk.quote,
    ),
    (
        "check_exchange_verification",
        "Whether this customer's identity is verified.",
        {},
        Safety.SAFE,
        Desk.verification,
    ),
    (
        "create_exchange_order",
        "Create an order once the customer has agreed to a quote. Give the order number to the customer.",
        _PAIR,
        Safety.UNSAFE,
        Desk.create_order,
    ),
    (
        "fetch_exchange_requisites",
        "Where the customer pays for an order. Pass the details on exactly as they are.",
        _ORDER,
        Safety.SAFE,
        Desk.requisites,
    ),
    (
        "verify_exchange_payment",
        "Whether the customer's payment for an order has been received.",
        _ORDER,
        Safety.SAFE,
        Desk.verify_payment,
    ),
    (
        "issue_exchange_payout",
        "Pay an order out to the customer, after its payment has been received.",
        _PAYOUT,
        Safety.UNSAFE,
        Desk.pay_out,
    ),
)


def exchange_tools(store: ExchangeStore, customer: str) -> list[FunctionTool]:
    """The desk's tools for one customer: the contact of the conversation, as the store knows them."""
    desk = Desk(store, customer)
    return [
        FunctionTool(name, description, _schema(properties), _execute(desk, step), safety=safety)
        for name, description, properties, safety, step in _TOOLS
    ]


def _schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _execute(desk: Desk, step: _Step) -> Callable[[Arguments, ToolContext], Awaitable[ToolOutcome]]:
    async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        try:
            answer = await step(desk, arguments, context)
        except DeskError as exc:
            return told_in_json(str(exc), context, error=exc.code)
        return succeeded(json.dumps(answer, ensure_ascii=False), context)

    return execute
