"""A document too large to hold, or cut off, as smaller documents of the same form.

Some sources write one object around a list of spans or runs. Its elements are taken one by one; a piece is some of them
inside what the document said before them: `{"info": {…}, "data": {"spans": [<some>]}}`.
"""

LISTS = frozenset(
    {
        ("resourceSpans", "scopeSpans", "spans"),  # OTLP
        ("data",),  # listings
        ("data", "spans"),  # MLflow
        ("observations",),  # Langfuse
        ("child_runs",),  # LangSmith
    }
)
AROUND = frozenset(path[:length] for path in LISTS for length in range(len(path)))  # what has such a list inside

PIECE_BYTES = 1024 * 1024
_MAX_MEMBER_BYTES = 64 * 1024  # of what is repeated around each piece


class Pieces:
    """Where in the document reading has come to, and the elements of the list at hand."""

    def __init__(self) -> None:
        self._levels: list[tuple[bytearray, bytes]] = []  # how each begins, and its closing bracket
        self._elements: list[bytes] = []
        self._size = 0
        self.line = 0

    def enter(self, bracket: bytes, key: bytes) -> None:
        """Go into a container, which is the member `key` of the one at hand."""
        begin = key + b":" + bracket if key else bracket
        self._levels.append((bytearray(begin), b"}" if bracket == b"{" else b"]"))

    def leave(self) -> None:
        self._levels.pop()

    def member(self, key: bytes, value: bytes) -> None:
        """Keep a member of the object at hand, unless it is large."""
        if len(value) <= _MAX_MEMBER_BYTES:
            self._levels[-1][0].extend(key + b":" + value + b",")

    def add(self, element: bytes, line: int) -> None:
        if not self._elements:
            self.line = line
        self._elements.append(element)
        self._size += len(element)

    @property
    def is_full(self) -> bool:
        return self._size >= PIECE_BYTES

    def take(self) -> bytes | None:
        """The next piece; None if there are no elements for one."""
        if not self._elements:
            return None
        begin = b"".join(begin for begin, _ in self._levels)
        end = b"".join(end for _, end in reversed(self._levels))
        piece = begin + b",".join(self._elements) + end
        self._elements, self._size = [], 0
        return piece
