"""Where cases come from: an exported file, or the export of a running service, page by page.

Both end in a trailer with a count and a checksum. Without it they were cut, and a cut suite must not look like a
smaller one.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from engine.errors import EngineError
from engine.net import Client, Guard, Policy, parse_url
from engine.providers.openai import error_message
from engine.providers.retry import RetryPolicy, is_retried, parse_retry_after
from quality.cases.record import NO_END, CaseFile, LineFault, read_cases

EXPORT: Final = "/api/admin/quality/tool-call-regression-cases/export.jsonl"
STYLES: Final = "/api/admin/styles"
MAX_PAGES: Final = 10_000
TIMEOUT_S: Final = 120.0
MAX_WAIT_S: Final = 120.0  # for a service that asks to come back later
RETRY: Final = RetryPolicy(tries=4, base_s=1.0, cap_s=10.0)


class SourceError(EngineError):
    """Cases, or what is to be tried on them, cannot be had. The text says what to do."""


class Unreachable(SourceError):
    """The service did not answer, or not just now."""


def read_file(path: Path, *, require_trailer: bool = True) -> CaseFile:
    """Cases of an exported file; raises `SourceError` where there is none. Without `require_trailer` none is missed."""
    try:
        with path.open("rb") as lines:
            found = read_cases(lines, require_trailer=require_trailer)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}. Name an export of regression cases.") from error
    if not require_trailer:
        found.warnings = [warning for warning in found.warnings if warning.code != NO_END]
    return _without_twins(found)


class Service:
    """A running service as a client of its API sees it. `base` is its address, without `/api`."""

    def __init__(self, base: str, token: str, *, guard: Guard | None = None, retry: RetryPolicy = RETRY) -> None:
        self._base = base.rstrip("/")
        self._token = token
        self._guard = guard or Guard(Policy.local())
        self._retry = retry

    async def cases(self, *, status: str = "", limit: int = 500) -> CaseFile:
        """All cases, so many a page. Raises `SourceError`; faults of single lines are in what is returned."""
        whole = CaseFile()
        cursor, seen, offset = "", set[str](), 0
        async with self.session() as session:
            for _ in range(MAX_PAGES):
                query = {"status": status, "limit": str(limit), "cursor": cursor}
                body = await session.get(EXPORT, {name: value for name, value in query.items() if value})
                lines = body.splitlines(keepends=True)
                page = read_cases(lines, require_trailer=True)
                whole.cases += [replace(case, line=case.line + offset) for case in page.cases]
                whole.faults += [_moved(fault, offset) for fault in page.faults]
                whole.warnings += [_moved(fault, offset) for fault in page.warnings]
                whole.complete = page.complete
                if not page.complete or page.next_cursor is None:
                    return _without_twins(whole)
                if page.next_cursor in seen:
                    break
                cursor, offset = page.next_cursor, offset + len(lines) - 1
                seen.add(cursor)
        raise SourceError(f"{self._base}{EXPORT} does not come to an end: its cursor goes round in circles.")

    async def style_prompt(self, style_id: str) -> str:
        """The system message that a style makes: its prompt, then its examples."""
        async with self.session() as session:
            body = await session.get(STYLES)
        try:
            styles = {style["styleId"]: style for style in json.loads(body)["styles"]}
            if style_id not in styles:
                raise SourceError(f"There is no style {style_id!r}. There are: {', '.join(sorted(styles)) or 'none'}.")
            return _system_message(styles[style_id])
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{self._base}{STYLES} did not answer with styles.") from error

    @asynccontextmanager
    async def session(self) -> AsyncIterator["Session"]:
        """For as long as it is open, connections are kept."""
        try:
            parse_url(self._base)
            opened = self._guard.client(self._base, timeout_s=TIMEOUT_S)
        except (EngineError, ValueError) as error:
            raise SourceError(
                f"{self._base!r} is no address of a service: {error}. Write https://lab.example."
            ) from error
        async with opened as client:
            yield Session(self._base, self._token, client, self._retry)


class Session:
    """Requests to a service, with its token. They raise `SourceError`, and `Unreachable` if the service was away."""

    def __init__(self, base: str, token: str, client: Client, retry: RetryPolicy) -> None:
        self.base = base
        self._token, self._client, self._retry = token, client, retry

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        return await self._asked("GET", f"{path}{'?' if query else ''}{urlencode(query or {})}", None, is_retried)

    async def post(self, path: str, body: Any = None) -> bytes:
        """Sent again only after an answer that says that nothing was done."""
        return await self._asked("POST", path, None if body is None else json.dumps(body).encode(), _is_put_off)

    async def _asked(self, method: str, target: str, body: bytes | None, may_retry: Callable[[int], bool]) -> bytes:
        path = target.partition("?")[0]
        headers = {"Authorization": f"Bearer {self._token}"}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        tried = 0
        while True:
            tried += 1
            try:
                response = await self._client.request(method, f"{self.base}{target}", content=body, headers=headers)
            except EngineError as error:
                raise Unreachable(
                    f"{self.base}{path} cannot be read ({error}). Check the address and that the service runs; "
                    "if an answer is too large, lower --limit."
                ) from error
            status = response.status_code
            if 200 <= status <= 299:
                return response.content
            wait_s = parse_retry_after(response.headers.get("retry-after"))
            delay_s = self._retry.delay_s(tried, wait_s, MAX_WAIT_S) if may_retry(status) else None
            if delay_s is None:
                kind = Unreachable if status >= 500 else SourceError
                raise kind(self._refused(path, status, response.text))
            await asyncio.sleep(delay_s)

    def _refused(self, path: str, status: int, text: str) -> str:
        advice = {
            401: "The token is not valid: set QUALITY_LAB_TOKEN to one of this tenant that has not expired.",
            403: "The token lacks a scope: cases and answers need export:read, styles need read, replays need read and "
            "replays:write.",
            404: "Check --api-base: it is the address of the service, without /api.",
        }.get(status, error_message(text)[:300].replace(self._token, "…"))
        return f"{self.base}{path} answered with status {status}. {advice}"


def _is_put_off(status: int) -> bool:
    return status == 429


def _moved(fault: LineFault, offset: int) -> LineFault:
    return replace(fault, line=fault.line + offset) if fault.line else fault


def _without_twins(found: CaseFile) -> CaseFile:
    """Results go by id: a case that is there twice is a fault of the second."""
    first: dict[str, int] = {}
    for case in found.cases:
        if case.id in first:
            message = f"{case.id} is there already, in line {first[case.id]}"
            fault = LineFault(line=case.line, code="twice", message=message, case=case.id, tool=case.tool, path="/id")
            found.faults.append(fault)
        first.setdefault(case.id, case.line)
    found.cases = [case for case in found.cases if first[case.id] == case.line]
    return found


def _system_message(style: dict[str, Any]) -> str:
    parts = [str(style["systemPrompt"]).strip()]
    if examples := style["examples"]:
        shown = "\n\n".join(f"User: {one['user']}\nAssistant: {one['assistant']}" for one in examples)
        parts.append(f"Examples of good answers:\n\n{shown}")
    return "\n\n".join(filter(None, parts))
