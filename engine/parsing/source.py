"""Text that arrives in pieces, and generators that read it.

A reader is a generator: it yields when it needs more text and returns its result. It keeps absolute offsets (counted
from the first character of the reply), so where the text was cut into pieces cannot make a difference, as long as it
never decides on "nothing follows here" before the text is final. The methods below keep that promise.
"""

import re
from bisect import bisect_right
from collections.abc import Generator

type Wait[T] = Generator[None, None, T]

_BLANKS = re.compile(r"[ \t\r\n]*")


class Cut(Exception):
    """The output ended inside a call."""


class Broken(Exception):
    """What stands here cannot be a call. Raised by readers, caught by the machine; never leaves the package."""


class Marks:
    """A set of fixed strings to look for."""

    __slots__ = ("_heads", "literals", "longest", "regex")

    def __init__(self, *literals: str) -> None:
        self.literals = tuple(sorted(set(literals), key=lambda text: (-len(text), text)))
        self.longest = max(map(len, self.literals), default=0)
        self.regex = re.compile("|".join(map(re.escape, self.literals)) or r"(?!)")
        self._heads = frozenset(text[:n] for text in self.literals for n in range(1, len(text)))

    def may_become(self, text: str) -> bool:
        """Whether more text can make one of the marks, or a longer one, of `text`."""
        return not text or text in self._heads

    def pending(self, window: str, start: int, stop: int) -> int | None:
        """Where between two places a mark has begun that the window does not hold in full, if it has."""
        for place in range(max(start, len(window) - self.longest + 1), stop):
            if window[place:] in self._heads:
                return place
        return None


class Source:
    """The text so far. `pos` is where reading stands, `hold` the oldest offset that may still be asked for."""

    __slots__ = ("_parts", "_starts", "alone", "base", "final", "hold", "pos", "truncated", "window")

    def __init__(self) -> None:
        self.window = ""  # the text from `base` on; everything before `pos` has been looked at
        self.base = 0
        self.pos = 0
        self.hold: int | None = None
        self.final = False
        self.truncated = False  # finish_reason "length"
        self.alone = True  # nothing visible stands before `pos`
        self._parts: list[str] = []  # text before `base` that is still held, in pieces
        self._starts: list[int] = []

    @property
    def end(self) -> int:
        return self.base + len(self.window)

    def feed(self, text: str) -> None:
        """Append text. What was read is set aside, so the window stays short however long a call grows."""
        cut = self.pos - self.base
        if cut > 0:
            if self.hold is not None:
                keep = max(self.hold - self.base, 0)
                if keep < cut:
                    self._parts.append(self.window[keep:cut])
                    self._starts.append(self.base + keep)
            self.window = self.window[cut:]
            self.base = self.pos
        self.window += text

    def release(self) -> None:
        """Nothing before `pos` will be asked for again."""
        self.hold = None
        if self._parts:
            self._parts.clear()
            self._starts.clear()

    def slice(self, start: int, stop: int) -> str:
        """The text between two offsets, the first not before `hold`."""
        if start >= self.base:
            return self.window[start - self.base : stop - self.base]
        pieces: list[str] = []
        index = max(bisect_right(self._starts, start) - 1, 0)
        while index < len(self._parts) and self._starts[index] < stop:
            first = self._starts[index]
            pieces.append(self._parts[index][max(start - first, 0) : stop - first])
            index += 1
        if stop > self.base:
            pieces.append(self.window[: stop - self.base])
        return "".join(pieces)

    def rewind(self, offset: int) -> None:
        """Read again from `offset`, which is not before `hold`."""
        if offset < self.base:
            self.window = self.slice(offset, self.end)
            self.base = offset
            while self._starts and self._starts[-1] >= offset:
                self._starts.pop()
                self._parts.pop()
            if self._starts:
                self._parts[-1] = self._parts[-1][: offset - self._starts[-1]]
        self.pos = offset

    def more(self) -> Wait[None]:
        """Wait for more text; at the end of the output the reader is cut off."""
        if self.final:
            raise Cut
        yield

    def peek(self) -> Wait[str]:
        """The character at `pos`, "" at the end of the output."""
        while self.pos >= self.end and not self.final:
            yield
        index = self.pos - self.base
        return self.window[index : index + 1]

    def skip(self, run: re.Pattern[str]) -> Wait[bool]:
        """Step over a run of characters of one kind; whether there was any."""
        start = self.pos
        while True:
            found = run.match(self.window, self.pos - self.base)
            self.pos = self.base + found.end() if found else self.pos
            if self.pos < self.end or self.final:
                return self.pos > start
            yield

    def match(self, run: re.Pattern[str]) -> Wait[str]:
        """Step over a run of characters of one kind and return it. The start must be held."""
        start = self.pos
        yield from self.skip(run)
        return self.slice(start, self.pos)

    def blanks(self) -> Wait[None]:
        """Skip white space."""
        yield from self.skip(_BLANKS)

    def at(self, marks: Marks) -> Wait[str]:
        """The mark that stands at `pos`, not consumed; "" if there is none."""
        while True:
            index = self.pos - self.base
            found = marks.regex.match(self.window, index)
            if self.final or not marks.may_become(self.window[index : index + marks.longest]):
                return found.group() if found else ""
            yield

    def char(self, *allowed: str) -> Wait[str]:
        """Step over the character at `pos` if it is one of `allowed`; "" if it is not."""
        found = yield from self.peek()
        if found not in allowed:
            return ""
        self.pos += len(found)
        return found

    def take(self, marks: Marks) -> Wait[str]:
        """Like `at`, and step over the mark."""
        found = yield from self.at(marks)
        self.pos += len(found)
        return found

    def take_end(self, marks: Marks) -> Wait[bool]:
        """Like `take`, for the end of a block: at the end of the output a part of the mark will do."""
        if (yield from self.take(marks)):
            return True
        if not self.ends_within(marks):
            return False
        self.pos = self.end
        return True

    def ends_within(self, marks: Marks) -> bool:
        """Whether the output ends inside one of the marks that begins at `pos`."""
        rest = self.window[self.pos - self.base :]
        return self.final and bool(rest) and len(rest) < marks.longest and marks.may_become(rest)

    def until(self, marks: Marks) -> Wait[str]:
        """Move to the next of the marks and return it, not consumed; "" and the end if none comes."""
        while True:
            index = self.pos - self.base
            found = marks.regex.search(self.window, index)
            if found and not self.final:  # a mark may stand within another one that is not whole yet
                pending = marks.pending(self.window, index, found.start() + 1)
                if pending is not None:
                    self.pos = self.base + pending
                    yield
                    continue
            if found:
                self.pos = self.base + found.start()
                return found.group()
            if self.final:
                self.pos = self.end
                return ""
            self.pos = max(self.pos, self.end - marks.longest + 1)
            yield
