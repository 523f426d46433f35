"""What Review goes through: a filter of calls, or a queue. The screen knows this protocol alone.

A source is made for one reviewer and one request. All its methods need an open tenant scope. Whatever it says of items
is for this reviewer: labels that he must not see yet are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from quality.review.items import Item

# The parts of an item that a queue may show or leave out (`ReviewQueue.fields`; none named: all). Arguments, labels and
# the way to judge are always there.
PARTS = ("facts", "earlier", "system", "conversation", "hints", "result", "offered", "suggestion", "later")


class Lost(Exception):
    """The reviewer may not label this item here any more: his claim ran out and others took it, or it was taken out.
    The message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """One item in the rail. `label` is the item's newest label, None if there is none or it is not to be seen;
    `word` says what else is known of it, such as `skipped`."""

    item: Item
    label: str | None = None
    word: str = ""


@dataclass(frozen=True, kw_only=True)
class Rail:
    """The surroundings of an item in the source's order: `before` is nearest last, `after` nearest first."""

    before: Sequence[Stop] = ()
    here: Stop | None = None
    after: Sequence[Stop] = ()


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How far it is. `left` beyond a cap is not counted on (`capped`). Of a queue `total` and `done` are entries,
    `mine` those this reviewer labelled, and `held` those that are left but at work with others."""

    left: int
    mine_today: int
    capped: bool = False
    total: int | None = None
    done: int | None = None
    mine: int | None = None
    held: int = 0


@dataclass(frozen=True, kw_only=True)
class Desk:
    """How an item is shown here. `parts` are of PARTS; `why` says in one line why it is served; `is_blind`: others'
    answers and suggestions are not shown; `guidelines` is Markdown, beside the tenant's own."""

    parts: frozenset[str] = frozenset(PARTS)
    why: str = ""
    is_blind: bool = False
    guidelines: str = ""
    is_adjudication: bool = False


@dataclass(frozen=True, kw_only=True)
class Action:
    """Something else that can be done with an item here: `name` is that of the key (quality.review.keys), `url` takes a
    POST with the fields of the item, and answers with the address to go on at (`HX-Location`, or a redirect). `choices`
    are asked for as `to`, (value, word) each; with `asks_note` a `note` says why."""

    name: str
    url: str
    fields: dict[str, str] = field(default_factory=dict)
    choices: Sequence[tuple[str, str]] = ()
    asks_note: bool = False


class Source(Protocol):
    """One way through items."""

    name: str  # of a queue; empty for a filter

    @property
    def fields(self) -> dict[str, str]:
        """Hidden fields by which a write finds the way back here: `{"filter": …}` or `{"queue": …}`."""

    @property
    def faults(self) -> list[dict[str, Any]]:
        """What cannot be read of the address, as `path` and `message`."""

    def address(self, item: Item | None = None, **more: str) -> str:
        """Where Review shows this item; without one, where it begins, or resumes."""

    def following_address(self, item: Item) -> str:
        """Where the next open item after this one is shown: to open it may claim one, to know the address does not."""

    def first(self) -> Item | None:
        """The item to begin or go on with: one that is held already, else the first open one (it is claimed)."""

    def following(self, item: Item | None) -> Item | None:
        """The next open item after this one, claimed; None: there is none for this reviewer now."""

    def rail(self, item: Item | None) -> Rail:
        """What stands around this item."""

    def standing(self) -> Standing:
        """How far it is, for this reviewer and as a whole."""

    def desk(self, item: Item | None) -> Desk:
        """How this item is shown here."""

    def actions(self, item: Item | None) -> list[Action]:
        """Beyond labels: of a queue `skip`, `unskip`, `send_back`, `hand_over`, as they are possible now."""

    def check(self, item: Item) -> None:
        """Before a label is written: may this reviewer label it here? Raises Lost."""
