"""What people ask of the three agents, and the calls and results that answer it rightly."""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Facts = dict[str, Any]

EUR_RATES = {"EUR": 1.0, "USD": 1.0842, "GBP": 0.8571, "CHF": 0.9433, "JPY": 163.21, "TRY": 37.44, "AED": 3.9818}
PRICES = {"sencha": 18.5, "pot": 64.0, "matcha": 29.9, "bowl": 34.0, "whisk": 16.0, "oolong": 22.4}
BOOKING_URL = "https://booking.example.com/studio"
DAYS_TO_ARRIVAL = {"shipped": 3, "delayed": 6, "delivered": -2, "paid": 5}


@dataclass(frozen=True, slots=True)
class Want:
    """A right call, and what its tool returns."""

    tool: str
    args: dict[str, Any]
    result: Any


@dataclass(frozen=True, slots=True)
class Task:
    """One request. `slots` fill its question and its answer; `cycles` are the calls that are needed, by model reply."""

    intent: str
    slots: dict[str, str]
    cycles: tuple[tuple[Want, ...], ...]


JOURNEYS: dict[str, tuple[tuple[str, ...], ...]] = {
    "appointment-desk": (("link",), ("slots", "link"), ("slots", "book"), ("book",), ("book", "thanks")),
    "exchange-desk": (
        ("quote", "order"),
        ("quote", "verify", "order"),
        ("compare",),
        ("compare", "hours"),
        ("verify",),
        ("quote", "thanks"),
    ),
    "shop-support": (
        ("status", "refund"),
        ("refund",),
        ("two", "refund"),
        ("status",),
        ("search",),
        ("search", "price"),
        ("price",),
    ),
}


def day_in_words(day: dt.date, words: dict[str, Any]) -> str:
    return str(words["date"].format(day=day.day, number=day.month, month=words["months"][day.month - 1]))


def draw_facts(rng: random.Random, words: dict[str, Any], at: dt.datetime, contact: str) -> Facts:
    """What is true in one conversation. Everything that its turns mention agrees."""
    give, get, get2 = rng.sample(list(EUR_RATES), 3)
    status, status2 = rng.sample(list(DAYS_TO_ARRIVAL), 2)
    sku = rng.choice(list(PRICES))
    hour = rng.randint(9, 15)
    return {
        "contact": contact,
        "at": at,
        "day": at.date() + dt.timedelta(days=rng.randint(1, 12)),
        "service": rng.choice(list(words["services"])),
        "slot": rng.randint(2001, 2990),
        "time": f"{hour:02d}:{rng.choice(('00', '15', '30'))}",
        "time2": f"{hour + rng.randint(1, 3):02d}:45",
        "code": f"B-{rng.randint(5100, 5990)}",
        "from": give,
        "to": get,
        "to2": get2,
        "amount": rng.choice((50, 80, 120, 200, 250, 350, 400, 600, 900, 1200, 1500, 2400))
        * (100 if give == "JPY" else 1),
        "quote": f"Q-{rng.randint(20100, 29900)}",
        "deal": f"X-{rng.randint(3100, 3990)}",
        "limit": rng.choice((2000, 5000, 10000)),
        "order": f"A-{rng.randint(10100, 10990)}",
        "order2": f"A-{rng.randint(11000, 11990)}",
        "status": status,
        "status2": status2,
        "sku": sku,
        "quantity": rng.choice((1, 1, 1, 2)),
        "refund": f"R-{rng.randint(700, 990)}",
        "stock": rng.randint(2, 40),
        "target": rng.choice(("USD", "GBP", "CHF", "JPY")),
        "words": words,
        "seen": set(),
    }


def converted(amount: float, give: str, get: str) -> tuple[float, float]:
    """The rate, and what one gets."""
    rate = round(EUR_RATES[get] / EUR_RATES[give] * 0.988, 4)
    return rate, round(amount * rate, 2)


def plan(intent: str, facts: Facts) -> Task:
    """The task that an intent is in this conversation; what earlier turns looked up (`seen`) is not looked up again."""
    slots, cycles = _PLANS[intent](facts)
    return Task(intent, slots, cycles)


Plan = tuple[dict[str, str], tuple[tuple[Want, ...], ...]]


def _link(facts: Facts) -> Plan:
    return {"url": BOOKING_URL}, ((Want("offer_booking_link", {}, {"url": BOOKING_URL}),),)


def _when(facts: Facts) -> dict[str, str]:
    words = facts["words"]
    return {
        "service": words["services"][facts["service"]],
        "date": day_in_words(facts["day"], words),
        "time": facts["time"],
        "time2": facts["time2"],
        "code": facts["code"],
    }


def _find(facts: Facts) -> Want:
    day = facts["day"].isoformat()
    slots = [
        {"id": f"SL-{facts['slot'] + number}", "start": f"{day}T{time}:00+01:00", "minutes": 45}
        for number, time in enumerate((facts["time"], facts["time2"]))
    ]
    args = {"service": facts["service"], "date": day}
    return Want("find_slots", args, {"service": facts["service"], "timezone": "Europe/Rome", "slots": slots})


def _slots(facts: Facts) -> Plan:
    return _when(facts), ((_find(facts),),)


def _book(facts: Facts) -> Plan:
    slot = f"SL-{facts['slot']}"
    booked = {
        "booking": facts["code"],
        "slot_id": slot,
        "status": "confirmed",
        "reminder": {"channel": "sms", "hours": 24},
    }
    book = Want("book_appointment", {"slot_id": slot, "contact_id": facts["contact"]}, booked)
    return _when(facts), ((book,),) if "slots" in facts["seen"] else ((_find(facts),), (book,))


def _quote_call(facts: Facts, get: str, number: int) -> tuple[Want, dict[str, str]]:
    rate, out = converted(facts["amount"], facts["from"], get)
    quote = f"Q-{int(facts['quote'][2:]) + number}"
    until = (facts["at"] + dt.timedelta(minutes=10)).isoformat(timespec="seconds")
    args = {"from": facts["from"], "to": get, "amount": facts["amount"]}
    result = {"quote_id": quote, **args, "rate": rate, "gets": out, "fee": 0, "valid_until": until}
    return Want("compute_exchange_quote", args, result), {"rate": f"{rate:g}", "get": f"{out:,.2f}"}


def _money(facts: Facts) -> dict[str, str]:
    texts = {name: str(facts[name]) for name in ("amount", "from", "to", "to2", "quote", "limit")}
    return {**texts, "order": facts["deal"]}


def _quote(facts: Facts) -> Plan:
    want, numbers = _quote_call(facts, facts["to"], 0)
    return {**_money(facts), **numbers}, ((want,),)


def _compare(facts: Facts) -> Plan:
    one, numbers = _quote_call(facts, facts["to"], 0)
    two, others = _quote_call(facts, facts["to2"], 1)
    return {**_money(facts), **numbers, "get2": others["get"]}, ((one, two),)


def _check(facts: Facts) -> Want:
    result = {"contact_id": facts["contact"], "status": "verified", "limits": {"daily": {"EUR": facts["limit"]}}}
    return Want("check_exchange_verification", {"contact_id": facts["contact"]}, result)


def _verify(facts: Facts) -> Plan:
    return _money(facts), ((_check(facts),),)


def _order(facts: Facts) -> Plan:
    args = {
        "quote_id": facts["quote"],
        "contact_id": facts["contact"],
        "payout": {"method": "cash", "office": "Canal Row"},
    }
    result = {"order_id": facts["deal"], "state": "open", "quote_id": facts["quote"], "office": "Canal Row"}
    create = Want("create_exchange_order", args, result)
    return _money(facts), ((create,),) if "verify" in facts["seen"] else ((_check(facts),), (create,))


def _hours(facts: Facts) -> Plan:
    info = {"address": "12 Canal Row", "hours": {"mon-fri": "09:00-18:30", "sat": "10:00-13:00"}, "min": {"EUR": 50}}
    return {"time": "09:00", "time2": "18:30"}, ((Want("get_exchange_business_info", {}, info),),)


def _parcel(facts: Facts) -> dict[str, str]:
    words = facts["words"]
    due = facts["at"].date() + dt.timedelta(days=DAYS_TO_ARRIVAL[facts["status"]])
    return {
        "order": facts["order"],
        "order2": facts["order2"],
        "status": words["statuses"][facts["status"]],
        "status2": words["statuses"][facts["status2"]],
        "date": day_in_words(due, words),
        "product": words["products"][facts["sku"]],
        "amount": f"{PRICES[facts['sku']] * facts['quantity']:.2f}",
        "price": f"{PRICES[facts['sku']]:.2f}",
        "to": facts["target"],
        "get": f"{converted(PRICES[facts['sku']], 'EUR', facts['target'])[1]:,.2f}",
    }


def _get(facts: Facts, order: str, status: str) -> Want:
    item = {"sku": facts["sku"], "name": facts["words"]["products"][facts["sku"]], "quantity": facts["quantity"]}
    total = round(PRICES[facts["sku"]] * facts["quantity"], 2)
    due = facts["at"].date() + dt.timedelta(days=DAYS_TO_ARRIVAL[status])
    result = {
        "order_id": order,
        "status": status,
        "eta": due.isoformat(),
        "items": [item],
        "total": total,
        "currency": "EUR",
    }
    return Want("get_order", {"order_id": order}, result)


def _status(facts: Facts) -> Plan:
    return _parcel(facts), ((_get(facts, facts["order"], facts["status"]),),)


def _two(facts: Facts) -> Plan:
    one, two = _get(facts, facts["order"], facts["status"]), _get(facts, facts["order2"], facts["status2"])
    return _parcel(facts), ((one, two),)


def _refund(facts: Facts) -> Plan:
    amount = round(PRICES[facts["sku"]] * facts["quantity"], 2)
    args = {"order_id": facts["order"], "amount": amount, "reason": "damaged"}
    result = {
        "refund_id": facts["refund"],
        "order_id": facts["order"],
        "amount": amount,
        "currency": "EUR",
        "state": "accepted",
    }
    return _parcel(facts), ((_get(facts, facts["order"], "delivered"),), (Want("refund_order", args, result),))


def _search_call(facts: Facts) -> Want:
    name = facts["words"]["products"][facts["sku"]]
    found = {
        "sku": facts["sku"],
        "name": name,
        "price": PRICES[facts["sku"]],
        "currency": "EUR",
        "stock": facts["stock"],
    }
    args = {"query": name, "filters": {"field": "price", "op": "<=", "value": 70}, "limit": 5}
    return Want("search_products", args, {"total": 1, "products": [found]})


def _search(facts: Facts) -> Plan:
    return _parcel(facts), ((_search_call(facts),),)


def _price(facts: Facts) -> Plan:
    price, target = PRICES[facts["sku"]], facts["target"]
    rate, out = converted(price, "EUR", target)
    args = {"amount": price, "from_currency": "EUR", "to_currency": target}
    result = {**args, "rate": rate, "converted": out, "as_of": facts["at"].date().isoformat()}
    return _parcel(facts), ((_search_call(facts),), (Want("convert_currency", args, result),))


def _thanks(facts: Facts) -> Plan:
    return {}, ()


_PLANS: dict[str, Callable[[Facts], Plan]] = {
    "link": _link,
    "slots": _slots,
    "book": _book,
    "quote": _quote,
    "compare": _compare,
    "verify": _verify,
    "order": _order,
    "hours": _hours,
    "status": _status,
    "two": _two,
    "refund": _refund,
    "search": _search,
    "price": _price,
    "thanks": _thanks,
}
