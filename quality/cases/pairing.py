"""Pairing two rows of things as completely as can be, never greedily.

Greedy pairing depends on order: with steps `x in {1, 2}` and `x in {1}` it refuses the calls `x=1`, `x=2`.
"""

from collections import deque
from collections.abc import Callable, Sequence

type Edges = Sequence[Sequence[int]]


def maximum(edges: Edges, num_right: int) -> list[int | None]:
    """A maximum matching by augmenting paths: for each on the left its partner on the right. `edges[left]` lists the
    possible partners. Those further left are served first, with what stands further left: the result is stable."""
    partners: list[int | None] = [None] * len(edges)
    taken: list[int | None] = [None] * num_right
    for start in range(len(edges)):
        _augment(start, edges, partners, taken)
    return partners


def _augment(start: int, edges: Edges, partners: list[int | None], taken: list[int | None]) -> bool:
    """Find the shortest path that frees a partner for `start`, and move everyone along it."""
    came_from: dict[int, int] = {}  # right: the left that reached it
    waiting = deque([start])
    while waiting:
        left = waiting.popleft()
        for right in edges[left]:
            if right in came_from:
                continue
            came_from[right] = left
            holder = taken[right]
            if holder is not None:
                waiting.append(holder)
                continue
            place: int | None = right
            while place is not None:  # back along the path
                mover = came_from[place]
                previous = partners[mover]
                partners[mover], taken[place] = place, mover
                place = previous
            return True
    return False


class Covering:
    """Pairs things on the left, each of which takes several on the right, from `least` to `most`. First as many as
    possible of those that are needed get what they need; then as many as possible of the right find a place."""

    def __init__(self, edges: Edges, num_right: int, least: Sequence[int], most: Sequence[int]) -> None:
        self.edges, self.most = edges, most
        self.held: list[set[int]] = [set() for _ in edges]
        self.taken: list[int | None] = [None] * num_right
        for left, needed in enumerate(least):
            for _ in range(min(needed, len(edges[left]))):
                if not self._find_for_left(left):
                    break
        self._back: list[list[int]] = [[] for _ in range(num_right)]
        for left, rights in enumerate(edges):
            for right in rights:
                self._back[right].append(left)
        for right in range(num_right):
            if self.taken[right] is None:
                self._find_for_right(right)
        self.is_met = all(len(held) >= needed for held, needed in zip(self.held, least, strict=True))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(left, right), in order."""
        return [(left, right) for left, held in enumerate(self.held) for right in sorted(held)]

    def _find_for_left(self, start: int) -> bool:
        """One more for `start`, by a shortest path along which others change what they hold."""
        reached: dict[int, int] = {}  # right: the left that would take it
        gave: dict[int, int] = {}  # left: the right that is taken from it
        waiting = deque([start])
        while waiting:
            left = waiting.popleft()
            for right in self.edges[left]:
                if right in reached or right in self.held[left]:
                    continue
                reached[right] = left
                holder = self.taken[right]
                if holder is None:
                    self._hand_to_left(right, start, reached, gave)
                    return True
                if holder not in gave and holder != start:
                    gave[holder] = right
                    waiting.append(holder)
        return False

    def _hand_to_left(self, right: int, start: int, reached: dict[int, int], gave: dict[int, int]) -> None:
        while True:
            left = reached[right]
            self.taken[right] = left
            self.held[left].add(right)
            if left == start:
                return
            right = gave[left]
            self.held[left].remove(right)

    def _find_for_right(self, start: int) -> bool:
        """A place for `start`, by a shortest path along which others move."""
        reached: dict[int, int] = {}  # left: the right that would come to it
        waiting = deque([start])
        seen = {start}
        while waiting:
            right = waiting.popleft()
            for left in self._back[right]:
                if left in reached:
                    continue
                reached[left] = right
                if len(self.held[left]) < self.most[left]:
                    self._move_right(left, reached)
                    return True
                for other in sorted(self.held[left] - seen):
                    seen.add(other)
                    waiting.append(other)
        return False

    def _move_right(self, place: int, reached: dict[int, int]) -> None:
        left: int | None = place
        while left is not None:
            right = reached[left]
            before = self.taken[right]
            self.taken[right] = left
            self.held[left].add(right)
            if before is not None:
                self.held[before].remove(right)
            left = before


def one_to_one(num_left: int, num_right: int, fits: Callable[[int, int], bool | None]) -> bool | None:
    """Can all be paired, each with one of the other side? None where it hangs on pairs that could not be decided."""
    if num_left != num_right:
        return False
    table = [[fits(left, right) for right in range(num_right)] for left in range(num_left)]
    for accepted, answer in (((True,), True), ((True, None), None)):
        edges = [[right for right, fit in enumerate(row) if fit in accepted] for row in table]
        if None not in maximum(edges, num_right):
            return answer
    return False
