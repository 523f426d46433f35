"""Whether a place in the visible text lies in code: in a fence, or in backticks.

Markup in code is documentation unless it holds a call to an offered tool, so the machine asks here before it strips
anything. A span of backticks ends on the line it began on; a fence lasts until its closing line.
"""

import re

_RUN = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_FENCE_LINES = re.compile(r"\n {0,3}(`{3,}|~{3,})([^\n]*)(?=\n)")


class CodeContext:
    """Follows the visible text as it grows."""

    __slots__ = ("_fence_line", "_run", "_span", "blank", "empty", "fence")

    def __init__(self) -> None:
        self.fence = ""  # the run that opened the fence we are in
        self.blank = True  # nothing but blanks on this line so far
        self.empty = True  # nothing but blanks in the whole text so far
        self._span = 0  # length of the run of backticks that is open on this line
        self._run = 0  # length of the run that stands at the very end, and may still grow
        self._fence_line = ""  # this line, if it may open or close a fence

    @property
    def span(self) -> int:
        """Length of the backtick run that opened the span we are in, 0 outside of one."""
        span, run = self._span, self._run
        if not run:
            return span
        return run if not span else 0 if span == run else span

    def advance(self, text: str) -> None:
        """The text goes on with `text`."""
        if self.empty and not text.isspace():
            self.empty = not text
        cut = text.rfind("\n") + 1
        if cut:
            first = text.index("\n")
            self._advance_line(text[:first])
            self._end_line()
            if first + 1 < cut and ("```" in text or "~~~" in text):
                for found in _FENCE_LINES.finditer(text, first, cut):
                    self._fence(found)
            text = text[cut:]
        if text:
            self._advance_line(text)

    def _advance_line(self, text: str) -> None:
        """This line goes on with `text`, which has no line break."""
        if self.blank or self._fence_line:
            start = (self._fence_line + text)[:400]
            self._fence_line = start if start.lstrip(" ")[:1] in ("`", "~") else ""
            self.blank = self.blank and (not text or text.isspace())
        if self._run and text and text[0] != "`":
            self._close_run()
        if "`" in text:
            self._count_runs(text)

    def _count_runs(self, text: str) -> None:
        for found in _RUN.finditer(text):
            self._run += len(found.group())
            if found.end() < len(text):
                self._close_run()

    def _close_run(self) -> None:
        self._span, self._run = self.span, 0

    def _end_line(self) -> None:
        if self._fence_line and (found := _FENCE.match(self._fence_line)):
            self._fence(found)
        self._span, self._run, self._fence_line, self.blank = 0, 0, "", True

    def _fence(self, line: re.Match[str]) -> None:
        """A line that begins like a fence opens one, or closes the one we are in."""
        run, rest = line[1], line[2]
        if not self.fence:
            if run[0] == "~" or "`" not in rest:
                self.fence = run
        elif run.startswith(self.fence) and not rest.strip():
            self.fence = ""
