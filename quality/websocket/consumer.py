"""One WebSocket: messages in, one at a time; events of the turns that are followed out, as event streams have them.

A connection costs no thread and no database connection while nothing happens. It ends without harm: turns are durable,
go on by themselves, and may be followed again from any event.
"""

import asyncio
import logging
import uuid
from functools import partial
from typing import Any

from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError
from django.http import HttpRequest

from quality.api.problems import InvalidRequest, fault, problem
from quality.ingest.jsontext import dump
from quality.turns import events, live
from quality.websocket import messages
from quality.websocket.caller import Caller, Refused, find_caller, handshake
from tenants.context import request_id

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 2_000  # of a process
MAX_FOLLOWED = 20  # turns that have not ended, of a connection
RECHECK_S = 12.0  # with the time it takes, less than 15 s until who was shut out is out
SEND_S = 30.0  # a client that takes nothing for so long is gone


class TurnConsumer(AsyncWebsocketConsumer):
    """A connection: one caller, one conversation."""

    num_open = 0

    request: HttpRequest
    caller: Caller

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request_id.set(uuid.uuid4().hex)
        self._conversation_id = ""
        self._newest_turn: int | None = None
        self._begun: set[int] = set()
        self._followed: dict[int, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()
        self._is_open = self._is_stuck = False
        self._watch: asyncio.Task[None] | None = None
        self._main = asyncio.current_task()
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if not self._is_stuck:
                raise
        finally:
            if self._is_open:
                TurnConsumer.num_open -= 1
            await self._stop()

    async def connect(self) -> None:
        try:
            if TurnConsumer.num_open >= MAX_CONNECTIONS:
                raise Refused(503, "busy", "As many connections are open as one process may have. Try again soon.")
            self.request = handshake(self.scope)
            self.caller = await live.aside(partial(find_caller, self.request))
        except Refused as refusal:
            await self._refuse(refusal)
        except DatabaseError:
            logger.exception("Nobody can be let in")
            await self._refuse(Refused(503, "unavailable", "The database does not answer. Try again."))
        TurnConsumer.num_open += 1
        self._is_open = True
        await self.accept()
        self._watch = asyncio.create_task(self._keep_watch())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if not self._is_open:
            return
        try:
            kind, wanted = messages.read(text_data)
            if kind == "ping":
                await self._tell(dump({"type": "pong"}))
                return
            await self._check()
            await getattr(self, f"_on_{kind}")(wanted)
        except Refused as refusal:
            await self._end(refusal)
        except Exception as error:  # a message that cannot be served ends no connection
            told = messages.told(error)
            if told is None:
                logger.exception("A message was not served")
                told = messages.error_text(problem(500, "internal_error", "Something went wrong here."))
            await self._tell(told)

    async def disconnect(self, code: int) -> None:
        """The turns go on: their rows are what counts, and somebody may follow them again."""

    # --- what clients send -------------------------------------------------------------------------------------------

    async def _on_user_text(self, wanted: dict[str, Any]) -> None:
        self._require_sender()
        named, mine = wanted["conversationId"], self._conversation_id
        if named and mine and named != mine:
            message = f"This connection is the conversation {mine!r}. Open another one for {named!r}."
            raise InvalidRequest([fault("conversationId", "other_conversation", message)])
        if len(self._followed) >= MAX_FOLLOWED:
            raise InvalidRequest([fault("", "too_many_turns", f"{MAX_FOLLOWED} turns have not ended yet. Wait.")])
        wanted["conversationId"] = named or mine or messages.new_conversation_id()
        turn = await live.aside(partial(messages.send, self.caller, wanted))
        self._conversation_id = turn.conversation_id
        self._newest_turn = turn.pk
        self._begun.add(turn.pk)
        queued = {
            "type": "turn_state",
            "state": "queued",
            "turnId": turn.pk,
            "conversationId": turn.conversation_id,
            "externalId": turn.external_id,
        }
        await self._tell(dump(queued))
        self._follow(turn.pk, 0)

    async def _on_tool_result(self, wanted: dict[str, Any]) -> None:
        self._require_sender()
        await live.aside(partial(messages.answer, self.caller, self._turn_of(wanted), wanted))

    async def _on_cancel(self, wanted: dict[str, Any]) -> None:
        self._require_sender()
        await live.aside(partial(messages.call_off, self.caller, self._turn_of(wanted)))

    async def _on_follow(self, wanted: dict[str, Any]) -> None:
        turn_id: int = wanted["turnId"]
        if not self.caller.may_read and turn_id not in self._begun:
            raise InvalidRequest([fault("turnId", "insufficient_scope", "To follow this turn needs the scope read.")])
        if len(self._followed) >= MAX_FOLLOWED:
            raise InvalidRequest([fault("", "too_many_turns", f"{MAX_FOLLOWED} turns have not ended yet. Wait.")])
        await live.aside(partial(messages.state_of, self.caller, turn_id))
        self._follow(turn_id, wanted["after"])

    def _require_sender(self) -> None:
        if not self.caller.may_send:
            message = "You may only follow turns: to send needs the scope turns:write, or the role operator."
            raise InvalidRequest([fault("", "permission_denied", message)])

    def _turn_of(self, wanted: dict[str, Any]) -> int:
        """The turn that is meant: the newest of this connection where none is named."""
        turn_id: int | None = wanted.get("turnId", self._newest_turn)
        if turn_id is None:
            raise InvalidRequest([fault("turnId", "required", "Name the turn: this connection has begun none.")])
        return turn_id

    # --- what clients are told ---------------------------------------------------------------------------------------

    def _follow(self, turn_id: int, after: int) -> None:
        """Tell a turn's events from now on; anew, if they are told already."""
        if before := self._followed.pop(turn_id, None):
            before.cancel()
        self._followed[turn_id] = asyncio.create_task(self._tell_events(turn_id, after))

    async def _tell_events(self, turn_id: int, after: int) -> None:
        tenant_id, is_ended = self.caller.tenant.pk, False
        try:
            while not is_ended:  # a turn may wait for a person longer than one stream lasts
                async for told in live.follow(tenant_id, turn_id, after, masker=self.caller.masker):
                    if told is not None:
                        after, is_ended = told.seq, told.type == events.END
                        await self._tell(_with_number(told, turn_id))
                if not is_ended and await live.aside(partial(live.is_over, tenant_id, turn_id, after)):
                    is_ended = True  # and all was told before: who follows must not wait for more
                    state = await live.aside(partial(messages.state_of, self.caller, turn_id))
                    await self._tell(dump({"type": "turn_state", "state": state, "turnId": turn_id}))
        except DatabaseError:
            logger.exception("The events of turn %s are not told any more", turn_id)
            message = f"Events of turn {turn_id} cannot be read. Follow it again after event {after}."
            await self._tell(messages.error_text(problem(503, "unavailable", message)))
        finally:
            if self._followed.get(turn_id) is asyncio.current_task():
                del self._followed[turn_id]

    async def _tell(self, text: str) -> None:
        async with self._sending:
            if not self._is_open:
                return
            try:
                async with asyncio.timeout(SEND_S):
                    await self.send(text_data=text)
            except TimeoutError:
                self._drop()

    # --- may they still be here --------------------------------------------------------------------------------------

    async def _keep_watch(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            try:
                await self._check()
            except Refused as refusal:
                await self._end(refusal)
                return
            except DatabaseError as error:
                logger.warning("A caller could not be judged anew (%s); asking again soon", error)

    async def _check(self) -> None:
        """Judge the caller anew; raises Refused if they have lost what they had."""
        before = self.caller
        now = await live.aside(partial(find_caller, self.request, known=before))
        if (now.user.pk, now.tenant.pk) != (before.user.pk, before.tenant.pk):
            raise Refused(401, "not_authenticated", "You have signed out. Connect again.")
        if (before.may_send and not now.may_send) or (before.may_read and not now.may_read):
            raise Refused(403, "permission_lost", "Your role or your token's scopes were changed. Connect again.")
        self.caller = now

    async def _refuse(self, refusal: Refused) -> None:
        """Say no in the handshake: as the API does where the server lets us, else by its 403."""
        send: Any = self.base_send
        if "websocket.http.response" in (self.scope.get("extensions") or {}):
            found = problem(refusal.status, refusal.code, str(refusal))
            headers = [(b"content-type", found["Content-Type"].encode())]
            if refusal.status == 401:
                headers.append((b"www-authenticate", b'Bearer realm="quality-lab"'))
            await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": found.content})
        else:
            await self.close()
        raise StopConsumer

    async def _end(self, refusal: Refused) -> None:
        async with self._sending:
            if self._is_open:
                self._is_open = False
                TurnConsumer.num_open -= 1
                await self.close(code=refusal.close_code, reason=str(refusal).encode()[:120].decode(errors="ignore"))
        for task in self._followed.values():
            task.cancel()

    def _drop(self) -> None:
        """Leave a client that takes nothing: no word of goodbye would reach it."""
        self._is_stuck = True
        if self._main is not None:
            self._main.cancel()

    async def _stop(self) -> None:
        tasks = [*self._followed.values(), *([self._watch] if self._watch else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _with_number(told: events.Told, turn_id: int) -> str:
    """An event with the turn it is of and its number, to go on after. Spelled as it is stored otherwise."""
    return f'{told.data[:-1]},"turnId":{turn_id},"eventId":{told.seq}}}'
