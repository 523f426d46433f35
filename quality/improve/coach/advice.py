"""What a coach says, whoever wrote it."""

from collections.abc import Sequence
from dataclasses import dataclass

from quality.models import CoachItem

Kind = CoachItem.Kind

MAX_ITEMS = 20
MAX_LINE = 500  # characters of a guidance line
MAX_EXAMPLE = 2_000  # of each side of an example
MAX_RATIONALE = 1_000


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One item. `text` is a guidance line or a skill's name; `user` and `assistant` are an example's two sides."""

    kind: Kind
    text: str = ""
    user: str = ""
    assistant: str = ""
    rationale: str = ""
    feedback_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Advice:
    """All items with the rationale of the whole."""

    items: Sequence[Suggestion] = ()
    summary: str = ""
