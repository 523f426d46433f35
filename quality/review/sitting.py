"""What a reviewer can take back and give again, step by step: the stack of his sitting, read from the events.

Nothing is kept beside the events. An undo takes the newest step back that stands; an undo of an undo is a redo, and
gives that step again; a new label ends what could be redone. All functions need an open tenant scope.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from django.utils import timezone

from quality.models import FeedbackEvent
from quality.review.labelling import UNDO_LIFE, Action
from tenants.models import User

MAX_STEPS = 400


class Step(NamedTuple):
    """An event, without what may be long."""

    id: int
    turn_id: int
    cycle: int
    call_id: int | None
    action: str
    label: str | None
    version: int
    undoes: int | None

    @property
    def item_key(self) -> tuple[int, int, int | None]:
        """What tells its item from others. The cycle of a call may change, as more of its trace comes in."""
        return (self.turn_id, 0 if self.call_id else self.cycle, self.call_id)


@dataclass(frozen=True, kw_only=True)
class Sitting:
    """`undo` and `redo` are the steps to take next, back or forth; None: there is none. `undo_seen` and `redo_seen` are
    the versions of the reviewer's newest events on their items: what he has seen of them."""

    undo: Step | None = None
    redo: Step | None = None
    num_undo: int = 0
    num_redo: int = 0
    undo_seen: int = 0
    redo_seen: int = 0


def sitting_of(reviewer: User) -> Sitting:
    """Where this reviewer stands in what he did in the last hours; one query."""
    events = FeedbackEvent.objects.filter(reviewer=reviewer, created_at__gte=timezone.now() - UNDO_LIFE)
    newest = events.order_by("-id").values_list(*Step._fields)[:MAX_STEPS]
    return read(Step(*row) for row in reversed(newest))


def read(steps: Iterable[Step]) -> Sitting:
    """The stacks that a reviewer's events, oldest first, leave."""
    done: list[Step] = []
    undone: list[Step] = []
    newest: dict[tuple[int, int, int | None], int] = {}
    for step in steps:
        newest[step.item_key] = step.version
        if step.action == Action.LABEL:
            done.append(step)
            undone.clear()
        elif taken := _taken(step, done):
            done.remove(taken)
            undone.append(step)
        elif taken := _taken(step, undone):
            undone.remove(taken)
            done.append(step)
    undo, redo = next(reversed(done), None), next(reversed(undone), None)
    return Sitting(
        undo=undo,
        redo=redo,
        num_undo=len(done),
        num_redo=len(undone),
        undo_seen=newest[undo.item_key] if undo else 0,
        redo_seen=newest[redo.item_key] if redo else 0,
    )


def _taken(undoing: Step, steps: list[Step]) -> Step | None:
    """The step that this one took back: mostly the last one, but the API and an item's own page know no order."""
    key = undoing.item_key
    return next((step for step in reversed(steps) if step.version == undoing.undoes and step.item_key == key), None)
