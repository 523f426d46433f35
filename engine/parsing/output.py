"""What has come of a reply so far: visible text, reasoning, calls, and what may be shown of it by now."""

from dataclasses import dataclass

from engine.parsing.calls import Found
from engine.parsing.code import CodeContext

MAX_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class _Plain:
    """Where calls without markup stood; this text comes back if the reply has structured calls."""

    raw: str


class Output:
    """Collects in order. While `muted`, text goes nowhere, but is followed all the same."""

    def __init__(self) -> None:
        self.code = CodeContext()
        self.calls: list[Found] = []
        self.warnings: list[str] = []
        self.muted = False
        self.struck = False  # the text has `<s>`, so `</s>` is its end and no token
        self._items: list[str | _Plain] = []
        self._reasoning: list[str] = []
        self._fresh: list[str] = []
        self._waits = False  # a plain call was read; it may turn out to be text, so what follows is not shown yet

    @property
    def num_visible(self) -> int:
        """Characters of visible text so far."""
        return len(self._text(with_plain=False))

    def emit(self, text: str) -> None:
        if not text:
            return
        self.code.advance(text)
        if self.muted:
            return
        self._items.append(text)
        self._fresh.append(text)
        self.struck = self.struck or "<s>" in text

    def add_calls(self, calls: list[Found], plain_text: str | None) -> None:
        """Calls in their place; `plain_text` is how they stood there, if that was without markup."""
        self.calls += calls
        if calls and plain_text is not None:
            self._items.append(_Plain(plain_text))
            self._waits = True

    def add_reasoning(self, text: str) -> None:
        self._reasoning.append(text)

    def all_was_reasoning(self) -> None:
        """Everything so far turns out to be reasoning, its calls drafts."""
        self._reasoning.append(self._text(with_plain=True))
        self._items.clear()
        self._fresh.clear()
        self.calls.clear()
        self._waits = False
        self.code = CodeContext()

    def begin_again(self) -> None:
        """Text that was read as reasoning is read once more, for a call in it; until then it is not visible."""
        self.muted = True
        self.code = CodeContext()
        self.code.empty = False

    def warn(self, text: str) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)

    def take_fresh(self) -> str:
        """The text that may be shown now and was not taken before."""
        if not self._fresh or self._waits:
            return ""
        text = "".join(self._fresh)
        self._fresh.clear()
        return text

    def result(self, *, structured: bool) -> tuple[str, str, list[Found]]:
        """Visible text, reasoning and calls; with calls of its own the reply takes none from its text."""
        return self._text(with_plain=structured), "".join(self._reasoning), [] if structured else self.calls

    def _text(self, *, with_plain: bool) -> str:
        items = ((item.raw if with_plain else "") if isinstance(item, _Plain) else item for item in self._items)
        return "".join(items)
