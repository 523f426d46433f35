"""From a played scene to the record that every importer makes."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

from quality.demo.scene import PlayedCall, Scene
from quality.ingest import evidence
from quality.ingest.jsontext import dump
from quality.ingest.records import CallRecord, TurnRecord


def turn_record(scene: Scene) -> TurnRecord:
    return TurnRecord(
        external_id=scene.key,
        source=scene.source,
        calls=tuple(_calls(scene)),
        conversation=scene.conversation,
        contact=scene.contact,
        message=f"{scene.key}-in",
        outbound_message=f"{scene.key}-out" if scene.reply else None,
        started_at=evidence.utc(scene.started_at),
        duration_ms=scene.duration_ms,
        model=scene.model,
        provider=scene.provider,
        prompt_version=scene.prompt_version,
        style_id=scene.style_id,
        messages=dump(messages_of(scene)),
        system=dump(scene.system) if scene.system else None,
        position=scene.position,
        num_cycles=len(scene.cycles) + (scene.reply is not None),
        tools=scene.tools,
        warnings=scene.warnings,
    )


def messages_of(scene: Scene) -> list[dict[str, Any]]:
    """The turn's own messages in OpenAI chat form."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": scene.user}]
    for number, cycle in enumerate(scene.cycles):
        calls = [(_call_id(scene, number, index, call), call) for index, call in enumerate(cycle.calls)]
        messages.append(
            {
                "role": "assistant",
                "content": cycle.text,
                "tool_calls": [
                    {"id": call_id, "type": "function", "function": {"name": call.tool, "arguments": call.args}}
                    for call_id, call in calls
                ],
            }
        )
        messages.extend(
            {"role": "tool", "tool_call_id": call_id, "content": call.outcome.content}
            for call_id, call in calls
            if call.outcome.content is not None
        )
    if scene.reply is not None:
        messages.append({"role": "assistant", "content": scene.reply})
    return messages


def _call_id(scene: Scene, cycle: int, index: int, call: PlayedCall) -> str:
    return call.call_id or f"call_{scene.key.rpartition('-')[2]}{cycle}{index}"


def _calls(scene: Scene) -> Iterator[CallRecord]:
    asked_at = scene.started_at
    for number, cycle in enumerate(scene.cycles):
        asked_at += dt.timedelta(milliseconds=cycle.think_ms or 0)
        for index, call in enumerate(cycle.calls):
            args, warnings = evidence.args_from_text(call.args)
            outcome = call.outcome
            if outcome.content is None:
                result, warnings = None, (*warnings, "no_result")
            else:
                result, value = evidence.result_from_text(outcome.content)
                warnings = (*warnings, *evidence.suspicions(value))
            yield CallRecord(
                external_id=f"{scene.key}:{number}:{index}",
                tool_name=call.tool,
                cycle=number,
                index=index,
                tool_call_id=_call_id(scene, number, index, call),
                args=args,
                result=result,
                is_error=outcome.is_error,
                error=outcome.error,
                conversation=scene.conversation,
                contact=scene.contact,
                message=f"{scene.key}-{number}",
                started_at=evidence.utc(asked_at),
                duration_ms=outcome.duration_ms,
                model=scene.model,
                provider=scene.provider,
                source=scene.source,
                prompt_version=scene.prompt_version,
                tools=scene.tools,
                warnings=warnings,
            )
        asked_at += dt.timedelta(milliseconds=max((call.outcome.duration_ms or 0 for call in cycle.calls), default=0))
