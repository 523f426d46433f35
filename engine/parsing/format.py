"""What a format is: how it opens, and who reads it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.parsing.calls import Found
from engine.parsing.source import Source, Wait
from engine.parsing.toolbox import Toolbox


@dataclass(slots=True)
class Block:
    """What a reader made of a stretch of markup; none of it is visible text."""

    calls: list[Found] = field(default_factory=list)
    reasoning: str = ""
    verbatim: bool = False  # what follows is an answer: forms without markup are no calls in it


type Reader = Callable[[Source, Toolbox, str], Wait[Block | None]]


@dataclass(frozen=True, slots=True)
class Format:
    """A row of the table of formats.

    `read(source, tools, opening)` starts behind the opening. It returns a block with `pos` behind it, or None if what
    stands there is not its own. It raises `Broken` where a call cannot be read, `Cut` where the output ends in one.
    `closes` are the ends of the block, which are markup even when they stand alone. The opening of a `soft` format is
    common text too: where it returns None, all up to `pos` is text. A `plain` format has no markup at all.
    """

    name: str
    opens: tuple[str, ...]
    read: Reader
    closes: tuple[str, ...] = ()
    soft: bool = False
    plain: bool = False
