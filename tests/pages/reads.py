"""Every route of the service that answers a read, and what it answers to somebody."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

ENDLESS = {"turn-events", "api-turn-events"}
ELSEWHERE = {"gateway-completions", "gateway-models", "gateway-model"}  # another process answers them


def routes(patterns: Any = None, front: str = "") -> Iterator[tuple[str, str]]:
    """Name and pattern of every route of the service."""
    for one in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(one, URLResolver):
            yield from routes(one.url_patterns, front + str(one.pattern))
        elif isinstance(one, URLPattern):
            yield one.name or "", f"/{front}{one.pattern}"


def addresses(slug: str, ids: Mapping[str, int | Iterable[int]], *, case: int, entry: int) -> list[tuple[str, str]]:
    """Name and address of every route. `ids` are those of what it is about, by what the names of routes begin with."""
    given = {"slug": slug, "entry": entry, "number": case, "ref": f"REG-{case}", "position": 0}
    made = []
    for name, pattern in routes():
        kind = name.removeprefix("api-")
        about = next((ids[word] for word in sorted(ids, key=len, reverse=True) if kind.startswith(word)), 1)
        for pk in [about] if isinstance(about, int) or "<int:pk>" not in pattern else about:
            values = given | {"pk": pk}
            parts = re.split(r"<(?:\w+:)?(\w+)>", pattern)
            parts[1::2] = [str(values.get(part, "x")) for part in parts[1::2]]
            made.append((name, "".join(parts)))
    return made


@dataclass(frozen=True)
class Answer:
    """What came of a read: 200 with text, or what was refused."""

    name: str
    status: int
    text: str
    headers: str


def asked(
    client: Client,
    token: str,
    found: Iterable[tuple[str, str]],
    *,
    queries: Callable[[str], Iterable[str]] = lambda _name: ("",),
    headers: Mapping[str, str] | None = None,
) -> dict[str, Answer]:
    """The answers of every address, by it. `queries` of a route's name are what its address is asked with; the API is
    asked with the token, pages by who is signed in, with `headers`."""
    answers = {}
    for name, path in found:
        if name in ENDLESS | ELSEWHERE:
            continue
        with_headers = {"Authorization": f"Bearer {token}"} if path.startswith("/api/") else dict(headers or {})
        for query in queries(name):
            response = client.get(path + query, headers=with_headers)
            assert response.status_code < 500, path + query
            body = b"".join(response) if response.streaming else response.content
            said = "\n".join(f"{key}: {value}" for key, value in response.items())
            answers[path + query] = Answer(name, response.status_code, body.decode(), said)
    return answers
