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


def covering(edges: Edges, num_right: int, needed: Sequence[bool]) -> list[int | None]:
    """A matching in which as many of the `needed` on the left as possible have a partner, and then as many of the right
    as possible: partners of the left."""
    partners: list[int | None] = [None] * len(edges)
    taken: list[int | None] = [None] * num_right
    for start in range(len(edges)):
        if needed[start]:
            _augment(start, edges, partners, taken)
    back: list[list[int]] = [[] for _ in range(num_right)]
    for left, rights in enumerate(edges):
        for right in rights:
            back[right].append(left)
    for right in range(num_right):  # from the other side: who has a partner keeps having one
        if taken[right] is None:
            _augment(right, back, taken, partners)
    return partners


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
