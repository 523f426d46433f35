"""One claimed turn, from its rows through the engine to its end."""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from engine.errors import EngineError
from engine.events import AssistantEnd, ToolCallChanged
from engine.loop import Outcome, TurnResult, run_turn
from engine.net import Client
from engine.providers.openai import OpenAIModel
from engine.records import Resume
from quality.ingest.jsontext import dump, storable
from quality.ingest.records import toolset_sha256
from quality.models import CallDecision, ModelReply, ToolCall, Toolset, Turn, TurnRun, TurnState
from quality.turns.breaker import Guarded, breaker_of
from quality.turns.claim import Claim
from quality.turns.endings import close_overtaken
from quality.turns.faults import may_strike
from quality.turns.fence import Fenced
from quality.turns.journal import Journal, LeaseLost
from quality.turns.recorder import RowRecorder
from quality.turns.rows import CLOSE_CALLS, FINISH, NAME_REPLY, PARK, SAVE_TURN, Origin, Statement, resume_from
from quality.turns.setup import Asked, Setup, SetupRefused, setup_source
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

MAX_HISTORY_TURNS = 50

STATES = {
    Outcome.ANSWERED: TurnState.DONE,
    Outcome.EXHAUSTED: TurnState.DONE,
    Outcome.EMPTY: TurnState.FAILED,
    Outcome.TIMED_OUT: TurnState.FAILED,
    Outcome.BUDGET_EXCEEDED: TurnState.FAILED,
    Outcome.PROVIDER_ERROR: TurnState.FAILED,
    Outcome.CANCELLED: TurnState.CANCELLED,
    Outcome.AWAITING: TurnState.AWAITING,
}

type InThread = Callable[..., "asyncio.Future[Any]"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A claimed turn as its rows tell it. `refused` is why it cannot run."""

    key: uuid.UUID
    own: list[dict[str, Any]]
    history: list[dict[str, Any]]
    origin: Origin
    resume: Resume
    toolsets: dict[int, int | None]
    is_cancelled: bool
    setup: Setup | None = None
    refused: SetupRefused | None = None


def load(claim: Claim) -> Loaded:
    """Read a turn, and what its tenant's settings give it, in one short transaction."""
    with tenant_scope(claim.tenant_id):
        run = TurnRun.objects.select_related("turn").get(turn=claim.turn_id)
        turn = run.turn
        close_overtaken(run.conversation_id, before=run.pk)
        replies: Sequence[ModelReply] = ()
        resume = Resume(())
        if run.last_seq > 1 or claim.attempt > 1:  # of a turn that said no more than that it runs nothing is recorded
            replies = list(ModelReply.objects.select_related("toolset").filter(turn=turn, error_code=""))
            calls = ToolCall.objects.filter(turn=turn).order_by("cycle", "index")
            resume = resume_from(replies, calls, CallDecision.objects.filter(turn=turn), str(run.key))
        setup, refused = None, None
        try:
            setup = setup_source()(Asked(claim.tenant_id, turn.pk, run.conversation_id, run.model_label, turn.style_id))
        except SetupRefused as error:
            refused = error
        return Loaded(
            key=run.key,
            own=opening_messages(turn),
            history=_history(turn),
            origin=Origin(
                source=turn.source,
                external_id=turn.external_id,
                conversation_id=turn.conversation_id,
                contact_id=turn.contact_id,
                message_id=turn.message_id,
                provider="openai" if setup else "",
                style_id=setup.style_id if setup else turn.style_id,
                prompt_version=setup.prompt_version if setup else "",
            ),
            resume=resume,
            toolsets={reply.cycle: reply.toolset_id for reply in replies},
            is_cancelled=run.cancel_requested_at is not None,
            setup=setup,
            refused=refused,
        )


def opening_messages(turn: Turn) -> list[dict[str, Any]]:
    """The user's message, which begins the turn; what followed it is the replies' to tell."""
    messages: list[dict[str, Any]] = json.loads(turn.messages or "[]")
    said = next((at for at, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    return messages[:said]


def _history(turn: Turn) -> list[dict[str, Any]]:
    """What was said before the turn: as its caller gave it, or from the conversation's earlier turns."""
    if turn.history is not None:
        given: list[dict[str, Any]] = json.loads(turn.history)
        return given
    if not turn.conversation_id:
        return []
    earlier = (
        Turn.objects.filter(source=turn.source, conversation_id=turn.conversation_id, pk__lt=turn.pk)
        .order_by("-pk")
        .values_list("messages", flat=True)[:MAX_HISTORY_TURNS]
    )
    return [message for messages in reversed(earlier) for message in json.loads(messages or "[]")]


def save_toolset(tenant_id: int, text: str) -> int:
    """Id of the toolset with this content; its row is made if there is none."""
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        sha = toolset_sha256(text)
        cursor.execute(
            "INSERT INTO agent_toolsets (tenant_id, sha256, tools, num_tools, created_at) "
            "VALUES (%s, %s, %s, %s, now()) ON CONFLICT DO NOTHING",
            [tenant_id, sha, text, len(json.loads(text))],
        )
        return Toolset.objects.values_list("pk", flat=True).get(sha256=sha)


class Carrier:
    """Runs one claim. `client` gives the kept connections to a model server; `cancel` ends the turn once set."""

    def __init__(
        self,
        claim: Claim,
        journal: Journal,
        in_thread: InThread,
        client: Callable[[Setup], Client],
        toolset_id: Callable[[int, str], "asyncio.Future[int | None]"],
    ) -> None:
        self.claim = claim
        self.cancel = asyncio.Event()
        self.is_lost = False
        self._is_closing = False  # the last write is under way: it tells by itself whether the turn is ours
        self.task: asyncio.Task[None] | None = None
        self._journal = journal
        self._in_thread = in_thread
        self._client = client
        self._toolset_id = toolset_id

    def lose(self) -> None:
        """The turn is another's: stop at once, write nothing more."""
        self.is_lost = True
        if self.task is not None and not self._is_closing:
            self.task.cancel()

    async def run(self) -> None:
        may_strike("claimed")
        try:
            loaded: Loaded = await self._in_thread(load, self.claim)
            may_strike("loaded")
            recorder = self._recorder(loaded)
            if loaded.is_cancelled:
                self.cancel.set()
            if loaded.refused is not None or loaded.setup is None:
                await self._refuse(loaded, recorder)
                return
            result = await self._through_engine(loaded, loaded.setup, recorder)
            may_strike("ending")
            await self._end(loaded, recorder, result)
            may_strike("ended")
        except LeaseLost:
            logger.warning("turn %s: another worker has it now", self.claim.turn_id)

    def _recorder(self, loaded: Loaded) -> RowRecorder:
        def toolset_id(offered: Sequence[Any]) -> "asyncio.Future[int | None]":
            return self._toolset_id(self.claim.tenant_id, dump(list(offered)))

        recorder = RowRecorder(self.claim, self._journal, loaded.origin, toolset_id, self.lose)
        for cycle in loaded.resume.cycles:
            recorder.knows(cycle.reply.cycle, cycle.reply.model, loaded.toolsets.get(cycle.reply.cycle))
        return recorder

    async def _through_engine(self, loaded: Loaded, setup: Setup, recorder: RowRecorder) -> TurnResult:
        endpoint = setup.endpoint
        model = OpenAIModel(
            endpoint.base_url,
            endpoint.model,
            self._client(setup),
            key=endpoint.key,
            headers=endpoint.headers,
            secrets=setup.known_secrets,
            parameters=endpoint.parameters,
            timeout_s=endpoint.timeout_s,
        )
        breaker = breaker_of(self.claim.tenant_id, endpoint.base_url, endpoint.model)
        system = [{"role": "system", "content": setup.system}] if setup.system else []
        if self.claim.attempt > 1:  # what was known before the loss may not have been told
            for cycle in loaded.resume.cycles:
                for call in cycle.calls.values():
                    recorder.say(ToolCallChanged(call))
        return await run_turn(
            Guarded(model, breaker, self._in_thread),
            [Fenced(tool, recorder.is_ours) for tool in setup.tools],
            [*system, *loaded.history, *loaded.own],
            recorder=recorder,
            limits=setup.limits,
            on_event=recorder.tell,
            resume=loaded.resume,
            cancel=self.cancel,
            turn_id=str(loaded.key),
            secrets=setup.secrets,
            redactor=setup.redactor,
        )

    async def _refuse(self, loaded: Loaded, recorder: RowRecorder) -> None:
        code, error = (loaded.refused.code, str(loaded.refused)) if loaded.refused else ("no_setup", "Not set up.")
        await self._finish(loaded, recorder, TurnState.FAILED, code, error=error)

    async def fail(self, error: Exception) -> None:
        """The turn ended by a fault of ours or of its settings, which trying again would meet again."""
        loaded: Loaded = await self._in_thread(load, self.claim)
        told = str(error) if isinstance(error, EngineError) else "A fault of the service; its log has the details."
        code = "invalid_tools" if isinstance(error, EngineError) else "internal_error"
        await self._finish(loaded, self._recorder(loaded), TurnState.FAILED, code, error=told)

    async def _end(self, loaded: Loaded, recorder: RowRecorder, result: TurnResult) -> None:
        await self._finish(
            loaded,
            recorder,
            STATES[result.outcome],
            "" if result.outcome is Outcome.AWAITING else result.outcome.value,
            error=result.error or "",
            result=result,
        )

    async def _finish(
        self,
        loaded: Loaded,
        recorder: RowRecorder,
        state: TurnState,
        end_reason: str,
        *,
        error: str,
        result: TurnResult | None = None,
    ) -> None:
        """One commit: the turn's end (or its rest), and the event that tells of it."""
        self._is_closing = True
        place = {"tenant_id": self.claim.tenant_id, "turn_id": self.claim.turn_id}
        content = result.content if result else None
        cycles = loaded.resume.cycles
        turn = {
            **place,
            "end_reason": end_reason,
            "messages": dump([*loaded.own, *(result.messages if result else ())]),
            "system": dump(loaded.setup.system) if loaded.setup and loaded.setup.system else None,
            "num_calls": _num_calls(result) if result else sum(len(cycle.calls) for cycle in cycles),
            "num_cycles": result.num_cycles if result else len(cycles),
            "warnings": sorted({storable(warning) for warning in result.warnings}) if result else [],
            "model": recorder.model or (loaded.setup.endpoint.model if loaded.setup else ""),
            "provider": loaded.origin.provider,
            "style_id": loaded.origin.style_id,
            "prompt_version": loaded.origin.prompt_version,
            "toolset_id": recorder.toolset,
            "outbound_message_id": f"{loaded.origin.external_id}/reply" if content else "",
        }
        if state is TurnState.AWAITING:
            await recorder.write((PARK, place), (SAVE_TURN, turn), last=[dump(_AWAITING)])
            return
        end = AssistantEnd(content, bool(result and result.exhausted), end_reason, error or None)
        finish = {**place, "state": state.value, "error": storable(error)}
        statements: list[Statement] = [(FINISH, finish), (SAVE_TURN, turn)]
        if turn["num_calls"]:
            statements += [(NAME_REPLY, turn), (CLOSE_CALLS, turn)]
        await recorder.write(*statements, last=[dump(end.as_dict())])


_AWAITING = {"type": "turn_state", "state": "awaiting"}


def _num_calls(result: TurnResult) -> int:
    return sum(len(message.get("tool_calls", ())) for message in result.messages)
