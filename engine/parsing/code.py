"""Whether a place in the visible text lies in code: in a fence, or in backticks.

Markup in code is documentation unless it holds a call to an offered tool, so the machine asks here before it strips
anything. A span of backticks ends on the line it began on; a fence lasts until its closing line.
"""

import re

_RUN = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")


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
        if "`" not in text and "~~~" not in text and not self._fence_line and not self._run:
            self._advance_plain(text)
            return
        for line in text.splitlines(keepends=True) if "\n" in text else [text]:
            self._advance_line(line)

    def _advance_plain(self, text: str) -> None:
        cut = text.rfind("\n") + 1
        if cut:
            self._span, self.blank = 0, True
            last = text[cut:]
        else:
            last = text
        if last and self.blank:
            self.blank = last.isspace()
            if self.blank and "~" not in last:
                return self._mark_empty(text)
            self._fence_line = last if last.lstrip(" ").startswith("~") else ""
        return self._mark_empty(text)

    def _mark_empty(self, text: str) -> None:
        if self.empty and text and not text.isspace():
            self.empty = False

    def _advance_line(self, line: str) -> None:
        body = line.rstrip("\n")
        self._mark_empty(body)
        if self.blank or self._fence_line:
            start = self._fence_line + body
            self._fence_line = start[:400] if start.lstrip(" ")[:1] in ("`", "~") else ""
        if body:
            self.blank = self.blank and body.isspace()
            self._count_runs(body)
        if body != line:
            self._end_line()

    def _count_runs(self, body: str) -> None:
        if self._run and body[0] != "`":
            self._close_run()
        for found in _RUN.finditer(body):
            self._run += len(found.group())
            if found.end() < len(body):
                self._close_run()

    def _close_run(self) -> None:
        self._span, self._run = self.span, 0

    def _end_line(self) -> None:
        found = _FENCE.match(self._fence_line)
        if found and not self.fence:
            if found[1][0] == "~" or "`" not in found[2]:
                self.fence = found[1]
        elif found and found[1].startswith(self.fence) and not found[2].strip():
            self.fence = ""
        self._span, self._run, self._fence_line, self.blank = 0, 0, "", True
