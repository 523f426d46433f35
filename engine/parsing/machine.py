"""The one scanner behind `parse` and `StreamParser`: text goes in piece by piece, visible text comes out.

It walks from mark to mark. At the opening of a format it lets that format read; the result is a block with calls,
or text, or markup without a call, which is dropped. What may still become a mark is held back.
"""

from engine.parsing import marks
from engine.parsing.calls import Found
from engine.parsing.code import CodeContext
from engine.parsing.format import Block, Format
from engine.parsing.output import Output
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

# Bounds on what hostile text can cost. An answer never comes near them; beyond them markup is stripped, not read.
MAX_FAILURES = 20_000
COST_OF_MARK, COST_OF_BRACKET = 20, 1  # what a failure counts: lines of ordinary text begin with brackets
MAX_RESCANS = 16  # characters read in vain, per character of the text
MAX_CUTS = 16  # blocks in which the output ends and that were closed all the same

_LINE = Marks("`", "\n")


class Machine:
    """Visible text, reasoning and calls of one reply. `feed` what arrives, then `finish`."""

    def __init__(self, tools: Toolbox, *, reasoning_open: bool = False) -> None:
        self._tools = tools
        self._source = Source()
        self._out = Output()
        self._verbatim = False  # an answer has begun in which forms without markup are text
        self._thought = reasoning_open  # there was a reasoning block
        self._draft: int | None = None  # where a reasoning block began that never ends, while it is read again
        self._reasons = False  # inside a reasoning block
        self._first_call = 0  # where it begins
        self.visible_before = 0  # characters of visible text in front of it
        self._failures = 0
        self._wasted = 0
        self._cuts = 0
        self._span_memo = (0, False, 0)
        self._run = self._walk(reasoning_open)

    @property
    def warnings(self) -> list[str]:
        return self._out.warnings

    @property
    def settled(self) -> int:
        """Up to which offset the text holds no call and can become none any more. Reasoning counts as settled, though
        a block that never ends is read again for a call that ends it."""
        source = self._source
        if self._out.calls:
            return self._first_call
        if self._reasons:
            return source.end
        return source.pos if source.hold is None else source.hold

    def feed(self, text: str) -> str:
        """Take more text; returns what may be shown now."""
        self._source.feed(text)
        next(self._run, None)
        return self._out.take_fresh()

    def finish(self, *, truncated: bool, structured: bool) -> tuple[str, str, list[Found]]:
        """Visible text, reasoning and calls; `structured`: the reply has calls of its own, so those in the text go."""
        self._source.truncated = truncated
        self._source.final = True
        for _ in self._run:
            pass
        return self._out.result(structured=structured)

    def _walk(self, reasoning_open: bool) -> Wait[None]:
        source = self._source
        if reasoning_open:
            yield from self._read_reasoning(marks.REASONING_ENDS)
        while mark := (yield from self._next_mark()):
            source.hold = source.pos
            if mark in marks.REASONING:
                yield from self._open_reasoning(mark)
            elif mark in marks.REASONING_END_SET:
                yield from self._end_reasoning(mark)
            elif mark in marks.OPENINGS:
                yield from self._read_block(mark, marks.OPENINGS[mark])
            else:
                yield from self._strip(mark)
        if self._draft is not None:
            self._out.add_reasoning(source.slice(self._draft, source.end))

    # ------------------------------------------------------------------ text between marks

    def _next_mark(self) -> Wait[str]:
        """Emit text up to the next mark and return it, `pos` in front of it; "" at the end of the output."""
        source = self._source
        while True:
            source.release()
            if self._failures > MAX_FAILURES:
                yield from self._strip_everything()
                return ""
            if self._out.code.blank and not self._out.code.fence and (mark := (yield from self._at_line_start())):
                return mark
            index = source.pos - source.base
            window = source.window
            found = marks.ANY.search(window, index)
            if found:
                start = marks.start_of(window, index, found)
                self._out.emit(window[index:start])
                source.pos = source.base + start
                if not source.final and marks.undecided(window, start):
                    source.release()
                    yield
                    continue
                if mark := marks.mark_of(window, start, found):
                    return mark
                self._out.emit(window[start : found.end()])
                source.pos = source.base + found.end()
                continue
            held = 0 if source.final else marks.held_back(window, index)
            stop = len(window) - held
            self._out.emit(window[index:stop])
            source.pos = source.base + stop
            if source.final:
                return ""
            source.release()
            yield

    def _at_line_start(self) -> Wait[str]:
        """At the start of a line: the bracket of a plain call, or a fence."""
        source = self._source
        while True:
            index = source.pos - source.base
            found = marks.LINE_START.match(source.window, index)
            assert found is not None
            self._out.emit(found[1])
            source.pos += len(found[1])
            mark = found[2] or ""
            index = source.pos - source.base
            if mark == "[" and not source.final and marks.undecided(source.window, index):
                yield
                continue
            if mark in marks.BRACKETS:
                wanted = (
                    self._tools
                    and not self._verbatim
                    and self._draft is None
                    and not marks.HARD.match(source.window, index)
                )
                return mark if wanted and (yield from self._may_be_plain(mark)) else ""
            if mark in marks.FENCES:
                return mark if self._tools and self._out.code.empty else ""
            if source.pos + len(mark) < source.end or source.final:
                return ""
            yield

    def _may_be_plain(self, bracket: str) -> Wait[bool]:
        """Whether a call may begin with this bracket, by what follows it. Cheap, as many lines begin with one."""
        source = self._source
        source.hold = here = source.pos
        source.pos += 1
        yield from source.blanks()
        following = yield from source.peek()
        source.rewind(here)
        if bracket == "{":
            return following == '"'
        return following in ("{", "_") or following.isalnum()

    def _strip_everything(self) -> Wait[None]:
        """Too much went wrong for more to be read: drop markup, keep text."""
        source = self._source
        self._out.warn("far more broken markup than any model writes: no call is read from the rest of the text")
        while True:
            index = source.pos - source.base
            stop = len(source.window) - (0 if source.final else marks.held_back(source.window, index))
            self._out.emit(marks.HARD.sub("", source.window[index:stop]))
            source.pos = source.base + stop
            if source.final:
                return
            yield

    # ------------------------------------------------------------------ reasoning

    def _open_reasoning(self, mark: str) -> Wait[None]:
        self._source.pos += len(mark)
        if self._draft is not None or (yield from self._quoted()):
            self._out.emit(mark)
            return
        self._thought = True
        yield from self._read_reasoning(marks.REASONING[mark])

    def _read_reasoning(self, ends: Marks) -> Wait[None]:
        """Read a reasoning block; if it never ends, it is read again for a call that ends it."""
        source = self._source
        source.hold = start = seen = source.pos
        context = CodeContext()
        self._reasons = True
        while mark := (yield from source.until(ends)):
            stop = source.pos
            context.advance(source.slice(seen, stop))
            seen = stop
            source.pos += len(mark)
            if not context.span or not (yield from self._span_closes(context.span)):
                self._out.add_reasoning(source.slice(start, stop))
                self._reasons = False
                return
        self._reasons = False
        source.rewind(start)
        self._draft = start
        self._out.begin_again()

    def _end_reasoning(self, mark: str) -> Wait[None]:
        """The end of a reasoning block that was opened in the prompt: all before it was reasoning."""
        self._source.pos += len(mark)
        if (yield from self._quoted()):
            self._out.emit(mark)
            return
        if not self._thought:
            self._thought = True
            self._out.all_was_reasoning()

    # ------------------------------------------------------------------ blocks

    def _read_block(self, mark: str, formats: tuple[Format, ...]) -> Wait[None]:
        source = self._source
        start = source.pos
        source.alone = self._out.code.empty and not self._out.calls
        block: Block | None = None
        cut = False
        broken = False
        for form in formats:
            source.rewind(start + len(mark))
            try:
                block = yield from form.read(source, self._tools, mark)
            except Cut:
                cut = True
            except Broken as exc:
                broken = True
                self._out.warn(f"{form.name}: {exc}")
            if block is not None or cut or broken:
                break
        reached = source.pos
        soft = formats[0].soft
        if soft or block is not None or cut:
            source.pos = max(reached, start + len(mark))
        else:
            source.rewind(start + len(mark))
        quoted = bool(self._out.code.fence or self._out.code.span) and (yield from self._quoted())
        if block is not None and not (quoted and not any(call.name in self._tools for call in block.calls)):
            self._accept(block, start, plain=formats[0].plain)
            return
        self._failed(reached, COST_OF_BRACKET if soft else COST_OF_MARK)
        if quoted or (soft and not cut and not broken):
            if cut:
                source.pos = source.end
            self._out.emit(source.slice(start, source.pos))
        elif cut:
            yield from self._drop_cut(start + len(mark), formats)
        elif broken:
            yield from self._drop_broken(mark, formats, reached)
        else:
            yield from self._drop_empty(mark, formats)

    def _accept(self, block: Block, start: int, *, plain: bool) -> None:
        source = self._source
        if block.calls and self._draft is not None:
            self._out.add_reasoning(source.slice(self._draft, start))
            self._out.muted = False
            self._draft = None
        if not self._out.calls:
            self._first_call = start
            self.visible_before = self._out.num_visible
        self._out.add_calls(block.calls, source.slice(start, source.pos) if plain else None)
        self._out.add_reasoning(block.reasoning)
        self._verbatim = self._verbatim or block.verbatim

    def _failed(self, reached: int, count: int) -> None:
        """Count what was read in vain."""
        self._failures += count
        self._wasted += max(reached - self._source.pos, 0)
        if self._wasted > MAX_RESCANS * self._source.pos + 1_000_000:
            self._failures = MAX_FAILURES + 1

    def _drop_cut(self, body: int, formats: tuple[Format, ...]) -> Wait[None]:
        """The output ends inside a call: none of it is shown, unless its block was closed after all."""
        source = self._source
        closes = marks.closes_of(formats)
        self._cuts += 1
        if not source.truncated and closes.literals and self._cuts <= MAX_CUTS:
            source.rewind(body)
            mark = yield from source.until(closes)
            source.pos += len(mark)
        else:
            source.pos = source.end
        self._out.warn(f"{formats[0].name}: the output ends inside a call")

    def _drop_broken(self, mark: str, formats: tuple[Format, ...], reached: int) -> Wait[None]:
        """A call that cannot be read: drop its block, which ends at its end tag or where the next one begins.

        Up to `reached` the end tag may stand in a string, so there it counts only at the end of a line.
        """
        source = self._source
        closes = marks.closes_of(formats)
        ends = marks.ends_of(formats, mark)
        first = 0
        while found := (yield from source.until(ends)):
            here = source.pos
            if found not in closes.literals:
                if here >= reached or not closes.literals:
                    return
                source.pos += len(found)
                continue
            source.pos += len(found)
            first = first or source.pos
            if here >= reached or (yield from self._line_ends()):
                return
        if first:
            source.rewind(first)

    def _line_ends(self) -> Wait[bool]:
        source = self._source
        here = source.pos
        yield from source.match(marks.SPACES)
        following = yield from source.peek()
        source.rewind(here)
        return following in ("", "\n", "\r", "<")

    def _drop_empty(self, mark: str, formats: tuple[Format, ...]) -> Wait[None]:
        """An opening with nothing callable after it: with its end it goes as a whole, without one only the tag does."""
        source = self._source
        closes = marks.closes_of(formats)
        if not closes.literals:
            return
        body = source.pos
        found = yield from source.until(marks.hard_or(closes))
        if found in closes.literals:
            source.pos += len(found)
        else:
            source.rewind(body)

    def _strip(self, mark: str) -> Wait[None]:
        """A token or an end tag on its own: markup, unless it stands in code."""
        source = self._source
        source.pos += len(mark)
        self._failed(source.pos, COST_OF_MARK)
        if (yield from self._quoted()) or not (yield from self._is_markup(mark)):
            self._out.emit(mark)

    def _is_markup(self, mark: str) -> Wait[bool]:
        """Tags that ordinary documents have too are markup only in the company of others."""
        source = self._source
        if mark == "</s>":
            return not self._out.struck
        followers = marks.NEEDS_FOLLOWER.get(mark)
        if followers is None:
            return True
        here = source.pos
        yield from source.blanks()
        company = bool((yield from source.at(followers)))
        alone = mark in marks.ENDS_TEXT and self._out.code.blank and source.pos >= source.end
        source.rewind(here)
        return company or alone

    # ------------------------------------------------------------------ code

    def _quoted(self) -> Wait[bool]:
        """Whether what ends at `pos` stands in a fence, or in backticks that are closed on this line."""
        if self._out.code.fence:
            return True
        span = self._out.code.span
        return bool(span) and (yield from self._span_closes(span))

    def _span_closes(self, span: int) -> Wait[bool]:
        source = self._source
        known_span, known, until = self._span_memo
        if known_span == span and source.pos < until:
            return known
        here = source.pos
        while (mark := (yield from source.until(_LINE))) == "`":
            run = yield from source.match(marks.BACKTICKS)
            if len(run) == span:
                break
        self._span_memo = (span, mark == "`", source.pos)
        source.rewind(here)
        return mark == "`"
