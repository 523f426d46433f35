"""Plays one task with one fault: which calls the model makes, what comes of them, what it replies, and what a careful
reviewer says of each call."""

import json
import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

from quality.demo.agents import Contract
from quality.demo.faults import LONG, MISTAKEN, SPOILERS, result_of
from quality.demo.scene import Cycle, Outcome, PlayedCall, Verdict
from quality.demo.tasks import Facts, Task, Want, draw_facts, plan

TIMEOUT_MS = 15_000
TYPICAL_MS = {
    "offer_booking_link": 4,
    "find_slots": 340,
    "book_appointment": 620,
    "compute_exchange_quote": 85,
    "check_exchange_verification": 210,
    "create_exchange_order": 480,
    "get_exchange_business_info": 6,
    "get_order": 130,
    "refund_order": 900,
    "search_products": 560,
    "convert_currency": 60,
}
REFUSALS = {
    "get_order": (404, "order_not_found", "There is no such order."),
    "refund_order": (409, "amount_too_high", "The amount is more than what is left to refund."),
    "book_appointment": (409, "slot_taken", "Somebody else took this time."),
    "create_exchange_order": (410, "quote_expired", "The quote is no longer valid."),
    "compute_exchange_quote": (422, "unknown_currency", "The desk has no rate for this pair."),
    "convert_currency": (422, "unknown_currency", "There is no rate for this pair."),
}
UNNEEDED = {"appointment-desk": "link", "exchange-desk": "hours", "shop-support": "status"}
UNAVAILABLE = (503, "unavailable", "The service is busy. Try again in 2 s.")
LIMITED = (429, "rate_limited", "Too many requests.")


@dataclass
class Play:
    """The turn as it grows."""

    task: Task
    facts: Facts
    contract: Contract
    model: str
    rng: random.Random
    cycles: list[Cycle] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    reply: str | None = None

    @property
    def words(self) -> dict[str, Any]:
        words: dict[str, Any] = self.facts["words"]
        return words

    def spelled(self, args: Any) -> str:
        """Arguments as this model spells JSON."""
        if self.model == "heron-mini":
            return json.dumps(args)
        compact = (",", ":") if self.model == "larch-8b-instruct" else None
        return json.dumps(args, ensure_ascii=False, separators=compact)

    def lasting(self, typical_ms: float) -> int:
        return max(1, round(typical_ms * math.exp(self.rng.gauss(0, 0.45))))

    def run(self, want: Want, args: Any = None) -> Outcome:
        """What the tool layer makes of a call with these arguments, the right ones if none are given."""
        args = want.args if args is None else args
        fault = self.contract.fault_in(want.tool, args)
        if fault is not None:
            code = "invalid_arguments" if want.tool in self.contract.schemas else "unknown_tool"
            return _failed(fault, {"error": {"code": code, "message": fault}}, self.rng.randint(1, 3))
        known = {name: value for name, value in args.items() if name in want.args}
        result = want.result if known == want.args else result_of(want, args)
        if result is None:
            return self.refused(
                want.tool, REFUSALS.get(want.tool, (422, "unprocessable", "The arguments make no sense."))
            )
        return Outcome(json.dumps(result, ensure_ascii=False), False, None, self.lasting(TYPICAL_MS[want.tool]))

    def refused(self, tool: str, refusal: tuple[int, str, str]) -> Outcome:
        status, code, message = refusal
        body = {"error": {"code": code, "message": message, "status": status}}
        return _failed(f"HTTP {status}: {message}", body, self.lasting(TYPICAL_MS[tool]))

    def ask(self, *calls: tuple[Want, Any, Outcome], text: str | None = None) -> None:
        """One model reply with these calls: the want, the arguments (a str is text as written), the outcome."""
        played = tuple(
            PlayedCall(want.tool, args if isinstance(args, str) else self.spelled(args), outcome)
            for want, args, outcome in calls
        )
        self.cycles.append(Cycle(played, text, self.lasting(900)))

    def ask_right(self, *wants: Want) -> None:
        """One model reply with right calls."""
        for index in range(len(wants)):
            self.verdicts.append(Verdict("good_reply", cycle=len(self.cycles), index=index))
        self.ask(*((want, want.args, self.run(want)) for want in wants))

    def judge(self, label: str, note: str = "", want: Want | None = None, index: int | None = 0) -> None:
        """The verdict on the newest call (`index` None: on the reply that made none)."""
        cycle = len(self.cycles) - 1 if index is not None else len(self.cycles)
        correction = None if want is None else self._correction(label, want, cycle, index)
        self.verdicts.append(Verdict(label, note, cycle, index, correction))

    def _correction(self, label: str, want: Want, cycle: int, index: int | None) -> dict[str, Any]:
        if label == "bad_args":
            return {"arguments": want.args}
        named: dict[str, Any] = {"tool": want.tool, "arguments": want.args}
        if label == "missing_tool":
            named["position"] = {"cycle": cycle, "index": 0 if index is None else index + 1}
        return named

    def answer(self, intent: str | None = None, slots: dict[str, str] | None = None) -> None:
        intent = intent or self.task.intent
        text = self.words[intent]["ok"].format_map(slots or self.task.slots)
        self.reply = text[:1].upper() + text[1:]

    def fail(self) -> None:
        self.reply = self.words["fail"]

    def invented(self) -> dict[str, str]:
        """Slots for an answer that nothing backs: what the person said is kept, what a tool would tell is made up."""
        said = {"order", "order2", "service", "product", "from", "to", "to2"}
        if self.task.intent in ("book", "quote", "compare", "order"):
            said |= {"amount", "date", "time", "quote"}
        if self.task.intent == "order":
            said -= {"order"}
        facts = draw_facts(self.rng, self.words, self.facts["at"], self.facts["contact"])
        slots = plan(self.task.intent, facts).slots
        return {name: self.task.slots[name] if name in said else value for name, value in slots.items()}


def _failed(error: str, body: dict[str, Any], duration_ms: int) -> Outcome:
    return Outcome(json.dumps(body, ensure_ascii=False), True, error, duration_ms)


def perform(play: Play, fault: str) -> str:
    """Play the task with a fault that fits it; returns the fault's name, `ok` if that one does not fit."""
    if not play.task.cycles:
        _without_tools(play, fault)
        return "unneeded" if play.cycles else "ok"
    if fault in ("missing", "described"):
        _no_call(play, fault)
        return fault
    if fault == "wrong_tool":
        _wrong_tool(play)
        return fault
    for cycle in play.task.cycles[:-1]:
        play.ask_right(*cycle)
    last = play.task.cycles[-1]
    if fault in SPOILERS:
        played = _spoiled(play, last, fault)
    elif fault in _STEPS:
        played = _STEPS[fault](play, last)
    else:
        played = False
    if played:
        return fault
    play.ask_right(*last)
    play.answer()
    return "ok"


def _without_tools(play: Play, fault: str) -> None:
    """Small talk needs no call; a nervous model makes one."""
    if fault == "wrong_tool":
        want = plan(UNNEEDED[play.contract.style_id], play.facts).cycles[0][0]
        play.ask((want, want.args, play.run(want)))
        play.judge("wrong_tool", "No tool was needed: the person only said thanks.")
    else:
        play.judge("good_reply", index=None)
    play.answer()


def _no_call(play: Play, fault: str) -> None:
    want = play.task.cycles[0][0]
    if fault == "described":
        spoken = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in want.args.items())
        play.reply = f"{play.words['promise']}\n\n→ {want.tool}({spoken})"
        play.judge("missing_tool", "The call is only described.", want, None)
    elif play.rng.random() < 0.45:
        play.reply = play.words["promise"]
        play.judge("missing_tool", "Promises to look, does not.", want, None)
    else:
        play.answer(slots=play.invented())
        play.judge("missing_tool", "Made up: no tool was asked.", want, None)


def _wrong_tool(play: Play) -> None:
    other = plan(MISTAKEN[play.task.intent], play.facts)
    wrong, right = other.cycles[0][0], play.task.cycles[-1][0]
    if play.rng.random() < 0.2:
        wrong = replace(right, tool=right.tool.replace("_", "-", 1))  # a name that nobody offered
    outcome = play.run(wrong)
    play.ask((wrong, wrong.args, outcome))
    play.judge("wrong_tool", play.rng.choice((f"Should be {right.tool}.", "Not the tool for this.", "")), right)
    if outcome.is_error:
        play.fail()
    elif play.rng.random() < 0.5:
        play.answer(other.intent, other.slots)
    else:
        play.answer(slots=play.invented())


def _spoiled(play: Play, wants: tuple[Want, ...], fault: str) -> bool:
    spoil, notes = SPOILERS[fault]
    want = wants[0]
    args = spoil(play.contract, want, play.rng, play.words)
    if args is None:
        return False
    outcome = play.run(want, args)
    others = [(other, other.args, play.run(other)) for other in wants[1:]]
    play.ask((want, args, outcome), *others)
    play.judge("bad_args", play.rng.choice((*notes, "")), want)
    if outcome.is_error and play.rng.random() < 0.45:
        play.ask_right(want)
        play.answer()
    elif outcome.is_error:
        play.fail()
    else:
        play.answer()
    return True


def _broken_json(play: Play, wants: tuple[Want, ...]) -> bool:
    want = wants[0]
    text = play.spelled(want.args)
    if len(text) < 12:
        return False
    fault = "The arguments are not JSON: the text ends within a value."
    outcome = _failed(fault, {"error": {"code": "invalid_json", "message": fault}}, 1)
    play.ask((want, text[: len(text) * 2 // 3], outcome))
    play.judge("bad_args", "Cut off.", want)
    play.fail()
    return True


def _timeout(play: Play, wants: tuple[Want, ...]) -> bool:
    error = "The tool gave no answer within 15 s."
    outcome = Outcome(f"Error: {error}", True, error, TIMEOUT_MS + play.rng.randint(2, 60))
    play.ask((wants[0], wants[0].args, outcome))
    if play.rng.random() < 0.35:
        play.answer(slots=play.invented())
        play.judge("other", "The tool timed out, and the reply pretends that it did not.")
    else:
        play.fail()
        play.judge("good_reply", "Right call; the tool was down.")
    return True


def _refused(play: Play, wants: tuple[Want, ...]) -> bool:
    want = wants[0]
    refusal = REFUSALS.get(want.tool)
    if refusal is None:
        return False
    play.ask((want, want.args, play.refused(want.tool, refusal)))
    play.judge("good_reply", play.rng.choice(("Right call, the tool refused.", "")))
    play.fail()
    return True


def _retried(play: Play, wants: tuple[Want, ...]) -> bool:
    want = wants[0]
    play.ask((want, want.args, play.refused(want.tool, play.rng.choice((UNAVAILABLE, LIMITED)))))
    play.judge("good_reply")
    play.ask_right(want)
    play.answer()
    return True


def _repeated(play: Play, wants: tuple[Want, ...]) -> bool:
    play.ask_right(*wants)
    for _ in range(play.rng.choice((1, 1, 2))):
        play.ask((wants[0], wants[0].args, play.run(wants[0])))
        play.judge("other", "The same call again; its result was there already.")
    play.answer()
    return True


def _no_result(play: Play, wants: tuple[Want, ...]) -> bool:
    play.ask((wants[0], wants[0].args, Outcome(None, None)))
    return True


def _misfit(play: Play, wants: tuple[Want, ...]) -> bool:
    invented = play.invented()
    if invented == play.task.slots:
        return False
    play.ask_right(*wants)
    play.verdicts.pop()
    play.judge("other", "The reply says something else than the result.", index=len(wants) - 1)
    play.answer(slots=invented)
    return True


def _half(play: Play, wants: tuple[Want, ...]) -> bool:
    if len(wants) < 2:
        return False
    play.ask((wants[0], wants[0].args, play.run(wants[0])))
    play.judge("missing_tool", "Only one of the two was looked up.", wants[1])
    play.answer(slots={**play.invented(), **{n: v for n, v in play.task.slots.items() if n in ("get", "status")}})
    return True


def _long(play: Play, wants: tuple[Want, ...]) -> bool:
    stretch = LONG.get(wants[0].tool)
    if stretch is None:
        return False
    play.ask_right(stretch(wants[0], play.rng))
    play.answer()
    return True


_STEPS = {
    "broken_json": _broken_json,
    "timeout": _timeout,
    "refused": _refused,
    "retried": _retried,
    "repeated": _repeated,
    "no_result": _no_result,
    "misfit": _misfit,
    "half": _half,
    "long": _long,
}
FAULTS = ("ok", "missing", "described", "wrong_tool", *SPOILERS, *_STEPS)
