"""A month of three agents' work, the same for the same seed and moment."""

import datetime as dt
import random
from collections.abc import Iterator

from quality.demo.agents import contracts, phrases
from quality.demo.play import FAULTS, Play, perform
from quality.demo.scene import Scene
from quality.demo.tasks import JOURNEYS, draw_facts, plan

SEED = 20_261
DAYS = 30
WEEK = (1.0, 1.1, 1.15, 1.0, 0.95, 0.4, 0.25)  # volume by weekday, from Monday
BUSY_DAYS_AGO = 9  # a sale: twice the usual volume
CHANGED_DAYS_AGO = {"appointment-desk": 18, "exchange-desk": 12, "shop-support": 8}  # when version 2 went live
MODELS = {"larch-70b-instruct": ("larch", 0.5), "larch-8b-instruct": ("larch", 0.3), "heron-mini": ("heron", 0.2)}
CLUMSINESS = {"larch-70b-instruct": 0.6, "larch-8b-instruct": 1.3, "heron-mini": 2.0}
SOURCES = {
    "appointment-desk": ("engine",),
    "exchange-desk": ("engine", "engine", "otel_genai"),
    "shop-support": ("otel_genai", "langfuse"),
}
LANGUAGES = {"en": 30, "it": 16, "es": 12, "ru": 12, "de": 10, "fr": 8, "ar": 6, "ja": 6}
WEIGHTS = {
    "ok": 110,
    "missing": 8,
    "described": 3,
    "wrong_tool": 6,
    "missing_required": 4,
    "outside_enum": 5,
    "wrong_type": 4,
    "invented_argument": 4,
    "wrong_value": 5,
    "broken_json": 1,
    "timeout": 3,
    "refused": 4,
    "retried": 4,
    "repeated": 4,
    "no_result": 3,
    "misfit": 4,
    "half": 2,
    "long": 2,
}
OF_TOOLS = {"timeout", "refused", "retried", "no_result", "long"}  # no model is to blame
PRONE = {  # what an intent is known for
    "quote": {"outside_enum": 4.0, "wrong_type": 3.0},
    "slots": {"outside_enum": 3.0, "missing": 2.0},
    "refund": {"refused": 5.0, "wrong_value": 3.0},
    "order": {"refused": 2.0, "missing_required": 3.0},
    "search": {"timeout": 5.0, "long": 6.0},
    "price": {"wrong_tool": 3.0, "missing": 3.0},
    "hours": {"missing": 4.0},
    "status": {"missing": 1.5, "retried": 2.0},
}
OWED_EVERY, OWED_TIMES = 5, 2  # every fifth turn pays off: each fault appears twice, whatever the dice say


def scenes(now: dt.datetime, *, prefix: str = "demo", conversations: int = 190, seed: int = SEED) -> Iterator[Scene]:
    """Turns of the last 30 days before `now`, oldest conversation first."""
    rng = random.Random(seed)  # noqa: S311 - no secret hangs on it
    starts = sorted(_moments(rng, now, conversations))
    owed = [fault for fault in reversed(FAULTS[1:]) for _ in range(OWED_TIMES)]  # those that seldom fit come first
    turn = 0
    for number, start in enumerate(starts):
        talk = Talk(random.Random(f"{seed}:{number}"), now, start, number, prefix)  # noqa: S311
        for scene in talk.scenes(turn, owed):
            yield scene
            turn += 1


def _moments(rng: random.Random, now: dt.datetime, count: int) -> Iterator[dt.datetime]:
    """Starts of conversations: a weekly rhythm, slow growth, office hours. None lies ahead of `now`."""
    days = range(DAYS)
    weights = []
    for ago in days:
        weight = WEEK[(now - dt.timedelta(days=ago)).weekday()] * (1.3 - 0.6 * ago / DAYS)
        weights.append(weight * (2 if ago == BUSY_DAYS_AGO else 1))
    for ago in rng.choices(days, weights, k=count):
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) - dt.timedelta(days=ago)
        moment = midnight + dt.timedelta(hours=rng.triangular(7, 20, 11))
        ahead = moment > now - dt.timedelta(minutes=30)
        yield now - dt.timedelta(hours=rng.uniform(0.5, 5)) if ahead else moment


class Talk:
    """One person's conversation with one agent, in one language."""

    def __init__(self, rng: random.Random, now: dt.datetime, start: dt.datetime, number: int, prefix: str) -> None:
        self.rng = rng
        self.start = start
        self.prefix = prefix
        self.conversation = f"{prefix}-conv-{number:04d}"
        style = rng.choice(list(JOURNEYS))
        self.journey = rng.choice(JOURNEYS[style])
        changed = now - dt.timedelta(days=CHANGED_DAYS_AGO[style])
        self.contract = contracts()[style]["2" if start > changed else "1"]
        self.language = rng.choices(list(LANGUAGES), list(LANGUAGES.values()))[0]
        self.model = rng.choices(list(MODELS), [share for _, share in MODELS.values()])[0]
        self.source = rng.choice(SOURCES[style])
        self.facts = draw_facts(rng, phrases()[self.language], start, f"contact-{rng.randint(1, 90):04d}")

    def scenes(self, first_turn: int, owed: list[str]) -> Iterator[Scene]:
        """The turns, numbered from `first_turn`; faults that got their turn leave `owed`."""
        at = self.start
        for position, intent in enumerate(self.journey):
            turn = first_turn + position
            played, fault = self._owed(intent, owed) if turn % OWED_EVERY == 0 else (None, "")
            if played is None:
                played = self._play(intent)
                fault = perform(played, self._fault(intent))
            scene = self._scene(played, fault, f"{self.prefix}-{turn:04d}", position, at)
            yield scene
            self.facts["seen"].add(intent)
            at += dt.timedelta(milliseconds=scene.duration_ms or 0, seconds=self.rng.randint(20, 240))

    def _play(self, intent: str) -> Play:
        return Play(plan(intent, self.facts), self.facts, self.contract, self.model, self.rng)

    def _owed(self, intent: str, owed: list[str]) -> tuple[Play | None, str]:
        """The first owed fault that fits this intent, played; None if none does."""
        for number, fault in enumerate(owed):
            played = self._play(intent)
            if perform(played, fault) == fault:
                del owed[number]
                return played, fault
        return None, ""

    def _fault(self, intent: str) -> str:
        weights = []
        for fault in FAULTS:
            weight = WEIGHTS[fault] * PRONE.get(intent, {}).get(fault, 1.0)
            if fault != "ok" and fault not in OF_TOOLS:
                weight *= CLUMSINESS[self.model] * (1.6 if self.contract.version == "1" else 0.6)
            weights.append(weight)
        return self.rng.choices(FAULTS, weights)[0]

    def _scene(self, played: Play, fault: str, key: str, position: int, at: dt.datetime) -> Scene:
        ask = self.rng.choice(played.words[played.task.intent]["ask"])
        return Scene(
            key=key,
            source=self.source,
            conversation=self.conversation,
            contact=self.facts["contact"],
            position=position,
            started_at=at,
            language=self.language,
            user=ask.format_map(played.task.slots),
            cycles=tuple(played.cycles),
            reply=played.reply,
            reply_ms=played.lasting(1100),
            model=self.model,
            provider=MODELS[self.model][0],
            tools=self.contract.text,
            fault=fault,
            style_id=self.contract.style_id,
            prompt_version=self.contract.prompt_version,
            system=self.contract.system,
            verdicts=tuple(played.verdicts),
        )
