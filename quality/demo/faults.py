"""What goes wrong with a call: arguments that a model spoils, other tools that it takes, results that run long."""

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

from quality.demo.agents import Contract
from quality.demo.tasks import EUR_RATES, PRICES, Want, converted

Args = dict[str, Any]

SPOKEN = {
    "EUR": "euros",
    "USD": "dollars",
    "GBP": "pounds",
    "CHF": "Swiss francs",
    "JPY": "yen",
    "TRY": "lira",
    "AED": "dirham",
    "damaged": "came broken",
    "cash": "in contanti",
}
INVENTED = (
    ("priority", "high"),
    ("language", "auto"),
    ("confirm", True),
    ("user_message", "see above"),
    ("timezone", "CET"),
)

# Intent → the intent whose first call a confused model makes instead.
MISTAKEN = {
    "link": "slots",
    "slots": "link",
    "book": "link",
    "quote": "hours",
    "compare": "hours",
    "verify": "hours",
    "hours": "verify",
    "order": "quote",
    "status": "search",
    "two": "search",
    "search": "status",
    "refund": "status",
    "price": "status",
}


def without_required(contract: Contract, want: Want, rng: random.Random, words: Args) -> Args | None:
    required = contract.schemas[want.tool].get("required", [])
    if not required:
        return None
    lost = rng.choice(required)
    return {name: value for name, value in want.args.items() if name != lost}


def outside_enum(contract: Contract, want: Want, rng: random.Random, words: Args) -> Args | None:
    """A value as people say it where the tool has codes."""
    args = dict(want.args)
    if "service" in args:
        return {**args, "service": words["services"][args["service"]]}
    if "payout" in args:
        return {**args, "payout": {**args["payout"], "method": SPOKEN["cash"]}}
    spoken = [name for name, value in args.items() if isinstance(value, str) and value in SPOKEN]
    if not spoken:
        return None
    name = rng.choice(spoken)
    return {**args, name: SPOKEN[args[name]]}


def wrong_type(contract: Contract, want: Want, rng: random.Random, words: Args) -> Args | None:
    args = dict(want.args)
    if "amount" in args:
        return {**args, "amount": f"{args['amount']} {args.get('from', 'EUR')}"}
    if "limit" in args:
        return {**args, "limit": "five"}
    for name in ("order_id", "contact_id", "date"):
        if name in args:
            return {**args, name: [args[name]]}
    return None


def invented_argument(contract: Contract, want: Want, rng: random.Random, words: Args) -> Args | None:
    name, value = rng.choice(INVENTED)
    return {**want.args, name: value}


def wrong_value(contract: Contract, want: Want, rng: random.Random, words: Args) -> Args | None:
    """Fits the schema, but is not what the person said."""
    args = dict(want.args)
    if "amount" in args:
        return {**args, "amount": round(args["amount"] * rng.choice((10, 0.1)), 2)}
    if "date" in args:
        day = dt.date.fromisoformat(args["date"])
        return {**args, "date": (day - dt.timedelta(days=rng.choice((7, 28, 365)))).isoformat()}
    if "order_id" in args:
        return {**args, "order_id": f"A-{int(args['order_id'][2:]) + rng.choice((1, 10, 90)):05d}"}
    if "query" in args:
        return {**args, "query": "tea"}
    if "slot_id" in args:
        return {**args, "slot_id": f"SL-{int(args['slot_id'][3:]) + 1}"}
    return None


Spoiler = Callable[[Contract, Want, random.Random, Args], Args | None]

SPOILERS: dict[str, tuple[Spoiler, tuple[str, ...]]] = {
    "missing_required": (without_required, ("A required argument is not there.", "manca un argomento obbligatorio")),
    "outside_enum": (outside_enum, ("Wants the code, not the word.", "value is not one the tool knows")),
    "wrong_type": (wrong_type, ("Type is wrong.", "Number came as text.")),
    "invented_argument": (invented_argument, ("This argument does not exist.", "invented argument")),
    "wrong_value": (wrong_value, ("Not the value the person gave.", "Check against the message: the value differs.")),
}


def result_of(want: Want, args: Args) -> Any:
    """What the tool returns for arguments that differ from the right ones and still make sense; None if it refuses."""
    if "amount" in args and "rate" in want.result:
        return _recalculated(want, args)
    if want.tool == "find_slots" and args.get("service") == want.args["service"] and isinstance(args.get("date"), str):
        return {**want.result, "slots": []}
    if want.tool == "search_products" and isinstance(args.get("query"), str) and isinstance(args.get("limit"), int):
        return {"total": 0, "products": []}
    if want.tool == "book_appointment" and isinstance(args.get("slot_id"), str) and "contact_id" in args:
        return {**want.result, "slot_id": args["slot_id"]}
    return None


def _recalculated(want: Want, args: Args) -> Any:
    give, get = (args.get(long, args.get(short)) for long, short in (("from_currency", "from"), ("to_currency", "to")))
    if give not in EUR_RATES or get not in EUR_RATES or not isinstance(args["amount"], int | float):
        return None
    rate, out = converted(args["amount"], give, get)
    return {**want.result, **args, "rate": rate, "gets" if "gets" in want.result else "converted": out}


def long_search(want: Want, rng: random.Random) -> Want:
    """A deep filter and a page of two hundred products."""
    filters: Args = {"field": "stock", "op": ">", "value": 0}
    for depth in range(14):
        filters = {
            "all" if depth % 2 else "any": [filters, {"field": f"tag.{depth}", "op": "!=", "value": "☕" * (depth % 3)}]
        }
    products = [
        {
            "sku": f"{rng.choice(list(PRICES))}-{number:03d}",
            "name": f"{want.args['query']} №{number} · 茶 · شاي",
            "price": round(rng.uniform(9, 90), 2),
            "currency": "EUR",
            "stock": rng.randint(0, 60),
        }
        for number in range(200)
    ]
    return Want(want.tool, {**want.args, "filters": filters, "limit": 200}, {"total": 412, "products": products})


def long_slots(want: Want, rng: random.Random) -> Want:
    """Ninety days of free times."""
    first = dt.date.fromisoformat(want.args["date"])
    slots = [
        {
            "id": f"SL-{4000 + day * 6 + hour}",
            "start": f"{first + dt.timedelta(days=day)}T{9 + hour:02d}:00:00+01:00",
            "minutes": 45,
        }
        for day in range(90)
        for hour in range(6)
        if rng.random() < 0.7
    ]
    return Want(want.tool, {**want.args, "days": 90}, {**want.result, "slots": slots})


LONG: dict[str, Callable[[Want, random.Random], Want]] = {"search_products": long_search, "find_slots": long_slots}
