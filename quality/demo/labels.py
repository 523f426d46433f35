"""Which calls the demo's two reviewers have labelled already: most of the old ones, few of the new ones."""

import datetime as dt
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from quality.demo.scene import Scene, Verdict

REVIEWERS = 2
SHARES = ((21, 0.72), (14, 0.52), (7, 0.32), (2, 0.15), (0, 0.02))  # of calls at least so many days old
SECOND_OPINION = 0.18
CORRECTED = 0.9  # of the labels that take a correction
DELAYS_H = (1, 5, 20, 30, 52, 75)  # from a call to its label
PAUSES_S = (9, 75)  # between two labels of a sitting
DISAGREEMENT = 0.16
OTHERWISE = {
    "good_reply": ("other", "Works, but the reply could say less."),
    "bad_args": ("wrong_tool", "I would not have used this tool at all."),
    "wrong_tool": ("bad_args", "The tool is fine, what it was given is not."),
    "missing_tool": ("good_reply", "No call needed, in my opinion."),
    "other": ("good_reply", ""),
}


@dataclass(frozen=True, slots=True)
class Given:
    """One label of one reviewer (0 or 1) on an item of a scene, and when it was given."""

    scene: Scene
    verdict: Verdict
    reviewer: int
    at: dt.datetime


def given(scenes: Sequence[Scene], now: dt.datetime, seed: int) -> Iterator[Given]:
    """Labels in the order in which they were given, one sitting of each reviewer a day."""
    rng = random.Random(f"sittings:{seed}")  # noqa: S311 - no secret hangs on it
    days: dict[tuple[dt.date, int], list[Given]] = {}
    for one in sorted(_given(scenes, now, seed), key=lambda given: given.at):
        days.setdefault((one.at.date(), one.reviewer), []).append(one)
    return iter(sorted((one for day in days.values() for one in _sitting(day, rng)), key=lambda given: given.at))


def _sitting(day: Sequence[Given], rng: random.Random) -> Iterable[Given]:
    """A day's labels one after another, up to the last of them: no label comes before its call."""
    at = day[-1].at
    for one in reversed(day):
        yield replace(one, at=at)
        at -= dt.timedelta(seconds=rng.uniform(*PAUSES_S))


def _given(scenes: Sequence[Scene], now: dt.datetime, seed: int) -> Iterator[Given]:
    rng = random.Random(f"labels:{seed}")  # noqa: S311 - no secret hangs on it
    for scene in sorted(scenes, key=lambda scene: scene.started_at):
        age = (now - scene.started_at).days
        share = next((share for days, share in SHARES if age >= days), 0.0)
        for verdict in scene.verdicts:
            if rng.random() >= share:
                continue
            first = rng.randrange(REVIEWERS)
            at = scene.started_at + dt.timedelta(hours=rng.choice(DELAYS_H), minutes=rng.random() * 59)
            at = min(at, now - dt.timedelta(minutes=1 + rng.random() * 50))
            said = verdict if rng.random() < CORRECTED else replace(verdict, correction=None)
            yield Given(scene, said, first, at)
            if rng.random() < SECOND_OPINION:
                later = at + (now - at) * rng.random() * 0.2
                yield Given(scene, _second(rng, said), 1 - first, later)


def _second(rng: random.Random, verdict: Verdict) -> Verdict:
    if rng.random() >= DISAGREEMENT:
        return replace(verdict, note="")
    label, note = OTHERWISE[verdict.label]
    return replace(verdict, label=label, note=note, correction=None)
