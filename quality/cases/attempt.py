"""One attempt at a case as it is stored: what the model answered, so that it can be judged again without asking."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.strict_json import JsonError, read_json
from engine.text import well_formed
from quality.cases.sample import Call, Ending, Sample, Served

RECORD: Final = "replay_answer"
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """`sources` say for each call where its result came from (null: the loop answered it, or nobody did); `raw` are the
    bodies of the server's answers as received. `requests` counts what was asked of the server, `cached` what was not.
    """

    case: str
    version: int
    side: str
    index: int
    sample: Sample
    sources: tuple[tuple[str | None, ...], ...] = ()
    raw: tuple[str, ...] = ()
    requests: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latencies_ms: tuple[int, ...] = ()
    models: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    request_sha256: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def key(self) -> tuple[str, str, int]:
        return self.side, self.case, self.index

    @property
    def counts(self) -> dict[str, int]:
        """How many results came from where."""
        found: dict[str, int] = {}
        for cycle in self.sources:
            for source in cycle:
                if source is not None:
                    found[source] = found.get(source, 0) + 1
        return found

    def line(self) -> str:
        """One line of JSON."""
        sample = self.sample
        record = {
            "recordType": RECORD,
            "schemaVersion": SCHEMA_VERSION,
            "case": self.case,
            "version": self.version,
            "side": self.side,
            "sample": self.index,
            "ending": str(sample.ending),
            "error": sample.error,
            "reply": sample.reply,
            "cycles": [[_call_record(call) for call in cycle] for cycle in sample.cycles],
            "sources": self.sources,
            "requests": self.requests,
            "cached": self.cached,
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "latenciesMs": self.latencies_ms,
            "models": self.models,
            "fingerprints": self.fingerprints,
            "requestSha256": self.request_sha256,
            "notes": self.notes,
            "raw": self.raw,
        }
        return well_formed(json.dumps(record, ensure_ascii=False))


class BadAttempt(ValueError):
    """A line that holds no stored attempt."""


def read_attempts(lines: Iterable[bytes]) -> Iterator[Attempt]:
    """Stored attempts, line by line; raises `BadAttempt`."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _attempt(read_json(line.decode()))
            except (JsonError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise BadAttempt(f"line {number} holds no stored answer: {type(error).__name__}: {error}") from error


def _call_record(call: Call) -> dict[str, Any]:
    served = call.served and {"text": call.served.text, "isError": call.served.is_error}
    return {"name": call.name, "arguments": call.arguments, "fault": call.fault, "served": served}


def _attempt(record: Mapping[str, Any]) -> Attempt:
    if record["recordType"] != RECORD or record["schemaVersion"] != SCHEMA_VERSION:
        raise ValueError(f"expected a {RECORD} of version {SCHEMA_VERSION}")
    cycles = tuple(tuple(_call(call) for call in cycle) for cycle in record["cycles"])
    return Attempt(
        case=str(record["case"]),
        version=int(record["version"]),
        side=str(record["side"]),
        index=int(record["sample"]),
        sample=Sample(cycles, record["reply"], Ending(record["ending"]), str(record["error"])),
        sources=tuple(tuple(cycle) for cycle in record["sources"]),
        raw=tuple(record["raw"]),
        requests=int(record["requests"]),
        cached=int(record["cached"]),
        prompt_tokens=int(record["promptTokens"]),
        completion_tokens=int(record["completionTokens"]),
        latencies_ms=tuple(record["latenciesMs"]),
        models=tuple(record["models"]),
        fingerprints=tuple(record["fingerprints"]),
        request_sha256=str(record["requestSha256"]),
        notes=tuple(record["notes"]),
    )


def _call(record: Mapping[str, Any]) -> Call:
    served = record["served"]
    answered = None if served is None else Served(str(served["text"]), is_error=bool(served["isError"]))
    return Call(str(record["name"]), record["arguments"], answered, str(record["fault"]))
