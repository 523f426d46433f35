"""Exported cases come back: into the same tenant, another one, or another install, and nothing of them is lost.

A case keeps its number where that is free, else it gets a new one and the report says which. A line that is here
already (as any version of its case, or from an import before) changes nothing. A file whose trailer does not fit is cut
or changed: nothing of it is taken. Needs an open tenant scope.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from quality.cases import schema
from quality.improve import case_store
from quality.improve.case_record import RECORD_TYPE, SCHEMA_VERSION, record_of
from quality.ingest.jsontext import MAX_BYTES, JsonError, Node, parse, storable
from quality.models import Case, CaseStatus, CaseVersion, Label
from tenants import audit
from tenants.masking import reading
from tenants.models import ApiToken, User

MAX_TOTAL_BYTES = 64 * 1024 * 1024
MAX_TOLD = 1_000  # refused lines listed in one report; all are counted
MAX_DEPTH = 200
_MAX_PLACE = 32_767
_REF = re.compile(r"REG-([1-9][0-9]{0,9})", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class LineFault:
    """Why a line was refused. `line` counts from 1, `path` names the field."""

    line: int
    path: str
    code: str
    message: str


@dataclass(kw_only=True)
class ImportReport:
    """What became of the lines. `renumbered` has the old and the new number of each case that could not keep its
    own."""

    num_created: int = 0
    num_unchanged: int = 0
    num_refused: int = 0
    refused: list[LineFault] = field(default_factory=list)
    renumbered: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, fault: LineFault) -> None:
        self.num_refused += 1
        if len(self.refused) < MAX_TOLD:
            self.refused.append(fault)


class ImportRefused(Exception):
    """Nothing of the file was taken; `fault` says why."""

    def __init__(self, fault: LineFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Fault(ValueError):
    def __init__(self, path: str, code: str, message: str) -> None:
        super().__init__(message)
        self.path, self.code, self.message = path, code, message


@dataclass(frozen=True, kw_only=True)
class _Incoming:
    """A case as a line says it, not stored yet."""

    line: int
    case: Case
    digest: bytes
    merged_into: str | None


@reading.as_stored()  # a mark in a file is a text like any other: what was behind it is not there
@transaction.atomic
def import_cases(
    lines: Iterable[bytes], *, by: User, require_trailer: bool = False, token: ApiToken | None = None
) -> ImportReport:
    """Take in the lines of an export, each with its line end. Bad lines are refused one by one; raises ImportRefused
    when the whole cannot be trusted."""
    report = ImportReport()
    case_store.lock_numbers()
    stored: dict[str, Case] = {}
    merged: list[tuple[Case, str]] = []
    waiting: dict[bytes, _Incoming] = {}

    def keep(incoming: _Incoming, number: int) -> None:
        old, case = incoming.case.ref, incoming.case
        case.number, case.created_by = number, by
        try:
            case_store.add(case, note="Imported.", by=by, token=token, action="imported", origin=incoming.digest)
        except ValidationError as error:
            message = " ".join(error.messages)
            report.refuse(LineFault(line=incoming.line, path="", code="invalid", message=message))
            return
        report.num_created += 1
        if case.ref != old:
            report.renumbered.append((old, case.ref))
        stored[old] = case
        if incoming.merged_into:
            merged.append((case, incoming.merged_into))

    for incoming in _read(lines, report, require_trailer=require_trailer):
        known = _known(incoming)
        if known or incoming.digest in waiting:
            report.num_unchanged += 1
            if known:
                stored.setdefault(incoming.case.ref, known)
        elif Case.objects.filter(number=incoming.case.number).exists():
            waiting[incoming.digest] = incoming  # new numbers begin above all those that the file itself brings
        else:
            keep(incoming, incoming.case.number)
    for incoming in waiting.values():
        keep(incoming, case_store.next_number())
    for case, ref in merged:
        if target := stored.get(ref):
            Case.objects.filter(pk=case.pk).update(merged_into=target)
    audit.record(
        "cases.imported",
        object_type="case",
        object_id="import",
        actor=by,
        token=token,
        detail={
            "created": report.num_created,
            "unchanged": report.num_unchanged,
            "refused": report.num_refused,
            "renumbered": len(report.renumbered),
        },
    )
    return report


def _known(incoming: _Incoming) -> Case | None:
    """The case that this line is of, if it is here: as it is, as it was, or under another number."""
    versions = CaseVersion.objects.select_related("case")
    imported = versions.filter(origin_sha256=incoming.digest).first()
    if imported is None:
        same_number = versions.filter(case__number=incoming.case.number, number=incoming.case.version)
        imported = same_number.filter(data=record_of(incoming.case)).first()
    return imported.case if imported else None


# --- reading ---------------------------------------------------------------------------------------------------------


def _read(lines: Iterable[bytes], report: ImportReport, *, require_trailer: bool) -> Iterator[_Incoming]:
    """The cases of the good lines; the bad ones go into the report. Checks the trailer."""
    digest, count, total, ended = hashlib.sha256(), 0, 0, False
    for line, raw in enumerate(lines, start=1):
        total += len(raw)
        if total > MAX_TOTAL_BYTES:
            limit = MAX_TOTAL_BYTES // 1024**2
            _stop(
                line,
                "",
                "too_large",
                _("The file is larger than %(limit)s MiB. Export it in parts.") % {"limit": limit},
            )
        if raw.strip():
            if ended:
                _stop(line, "", "after_trailer", _("More follows the last record of the export: two files in one?"))
            try:
                node = parse(raw, depth=MAX_DEPTH, limit=MAX_BYTES + 2, repeated_keys=True)
                if isinstance(node.value, dict) and node.value.get("recordType") == "_end":
                    _check_trailer(line, node, count, digest.hexdigest(), report)
                    ended = True
                else:
                    count += 1
                    yield _incoming(node, line)
            except JsonError as error:
                count += 1
                report.refuse(LineFault(line=line, path=error.path, code=error.code, message=error.message))
            except _Fault as error:
                report.refuse(LineFault(line=line, path=error.path, code=error.code, message=error.message))
        digest.update(raw)
    if ended:
        return
    if require_trailer:
        _stop(1, "", "no_trailer", _("The last line of the export is missing, so the file is cut. Export it again."))
    report.warnings.append(_("The last line of the export is missing: the file may be cut."))


def _check_trailer(line: int, node: Node, count: int, sha256: str, report: ImportReport) -> None:
    said = node.value
    if said.get("count") != count:
        _stop(
            line,
            "count",
            "wrong_count",
            _("The export had %(said)s records, here are %(count)s.")
            % {"said": repr(said.get("count")), "count": count},
        )
    if said.get("sha256") != sha256:
        _stop(
            line,
            "sha256",
            "wrong_sha256",
            _("The bytes are not those of the export: it was changed on its way, or edited."),
        )
    if said.get("nextCursor") is not None:
        report.warnings.append(_("This is a part of an export: more cases follow in another one."))


def _stop(line: int, path: str, code: str, message: str) -> NoReturn:
    raise ImportRefused(LineFault(line=line, path=path, code=code, message=message))


def _incoming(node: Node, line: int) -> _Incoming:
    """The case of one line; raises _Fault."""
    record = _Members(node, "")
    kind, version = record.take("recordType"), record.take("schemaVersion")
    if kind.value != RECORD_TYPE:
        raise _Fault(
            "recordType", "wrong_type", _("This is no case: its type is %(kind)s.") % {"kind": kind.text[:100]}
        )
    if type(version.value) is not int or version.value != SCHEMA_VERSION:
        raise _Fault(
            "schemaVersion", "unknown_version", _("Only version %(version)s is known.") % {"version": SCHEMA_VERSION}
        )
    given, observed, expected = (record.inside(name) for name in ("input", "observed", "expected"))
    context = record.evidence("context", dict)
    case = Case(
        number=_number(record.take("id")),
        version=record.whole("version", least=1, most=case_store.MAX_NUMBER),
        status=record.choice("status", CaseStatus.values),
        tool_name=record.text("toolName"),
        label=record.choice("label", Label.values),
        tags=_tags(record.take("tags")),
        args=given.evidence_or_null("args"),
        messages=given.evidence("messages", list),
        tools=given.evidence_or_null("tools", list),
        now=given.moment_or_null("now"),
        result=observed.evidence_or_null("result"),
        is_error=observed.flag("isError"),
        error=observed.text_or_null("error"),
        cycle=observed.whole("cycle", least=0, most=_MAX_PLACE),
        index=observed.whole_or_null("index", least=0, most=_MAX_PLACE),
        behavior=_behavior(expected.text("behavior")),
        expectation=_expectation(expected.take("expectation")),
        context=context,
        stubs=_stubs(record.take("stubs")),
        created_at=record.moment("createdAt"),
        updated_at=record.moment("updatedAt"),
    )
    for members in (record, given, observed, expected):
        members.finish()
    merged_into = node.members["context"].value.get("mergedInto")
    return _Incoming(
        line=line,
        case=case,
        digest=hashlib.sha256(record_of(case).encode()).digest(),
        merged_into=merged_into if isinstance(merged_into, str) else None,
    )


def _number(node: Node) -> int:
    found = _REF.fullmatch(node.value) if isinstance(node.value, str) else None
    if found is None or int(found[1]) > case_store.MAX_NUMBER:
        raise _Fault("id", "invalid", _("An id is REG- and a number from 1."))
    return int(found[1])


def _tags(node: Node) -> list[str]:
    tags = node.value
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _Fault("tags", "wrong_type", _("Expected a list of strings."))
    try:
        checked = case_store.checked_tags(tags)
    except ValidationError as error:
        raise _Fault("tags", "invalid", " ".join(error.messages)) from error
    if checked != tags:
        raise _Fault("tags", "invalid", _("A tag stands there twice, or has blanks around it."))
    return checked


def _behavior(text: str) -> str:
    if not text.strip():
        raise _Fault("expected.behavior", "blank", _("It says nothing of what is expected."))
    return text


def _stubs(node: Node) -> str:
    if fault := case_store.stubs_fault(node.value):
        raise _Fault("stubs", "invalid", fault)
    return node.text


def _expectation(node: Node) -> str:
    faults = schema.check(node.text)
    if faults:
        path = "expected.expectation" + faults[0].path.replace("/", ".")
        raise _Fault(path, faults[0].code, faults[0].message)
    return node.text


class _Members:
    """Takes the members of an object one by one; what is left at the end is unknown."""

    def __init__(self, node: Node, path: str) -> None:
        if not isinstance(node.value, dict):
            raise _Fault(path, "not_an_object", _("Expected an object."))
        self._path = path
        self._left = dict(node.members)

    def take(self, name: str) -> Node:
        node = self._left.pop(name, None)
        if node is None:
            raise self._fault(name, "required", _("It is missing."))
        return node

    def finish(self) -> None:
        for name in self._left:
            raise self._fault(name[:100], "unknown_member", _("There is no such member, and it would be lost."))

    def inside(self, name: str) -> "_Members":
        return _Members(self.take(name), f"{self._path}{name}.")

    def evidence(self, name: str, kind: type) -> str:
        node = self.take(name)
        if not isinstance(node.value, kind):
            raise self._fault(name, "wrong_type", _("Expected an object.") if kind is dict else _("Expected a list."))
        return node.text

    def evidence_or_null(self, name: str, kind: type = object) -> str | None:
        if self._is_null(name):
            return None
        return self.evidence(name, kind)

    def text(self, name: str) -> str:
        value = self.take(name).value
        if not isinstance(value, str):
            raise self._fault(name, "wrong_type", _("Expected a string."))
        if value != storable(value):
            raise self._fault(name, "unstorable", _("It holds a NUL character or half a surrogate pair."))
        return value

    def text_or_null(self, name: str) -> str | None:
        return None if self._is_null(name) else self.text(name)

    def choice(self, name: str, values: list[str]) -> str:
        value = self.text(name)
        if value not in values:
            raise self._fault(
                name,
                "unknown_value",
                _("%(value)s is none of %(known)s.") % {"value": repr(value[:100]), "known": ", ".join(values)},
            )
        return value

    def flag(self, name: str) -> bool | None:
        value = self.take(name).value
        if value is not None and not isinstance(value, bool):
            raise self._fault(name, "wrong_type", _("Expected true, false or null."))
        return value

    def whole(self, name: str, *, least: int, most: int) -> int:
        value = self.take(name).value
        if type(value) is not int or not least <= value <= most:
            raise self._fault(
                name,
                "invalid",
                _("Expected a whole number from %(least)s to %(most)s.") % {"least": least, "most": most},
            )
        return value

    def whole_or_null(self, name: str, *, least: int, most: int) -> int | None:
        return None if self._is_null(name) else self.whole(name, least=least, most=most)

    def moment(self, name: str) -> dt.datetime:
        value = self.text(name)
        try:
            if not _TIME.fullmatch(value):
                raise ValueError
            return dt.datetime.fromisoformat(value).astimezone(dt.UTC)
        except (ValueError, OverflowError) as error:
            raise self._fault(
                name, "invalid_time", _("Expected a time such as 2026-03-01T14:30:00.000000Z.")
            ) from error

    def moment_or_null(self, name: str) -> dt.datetime | None:
        return None if self._is_null(name) else self.moment(name)

    def _is_null(self, name: str) -> bool:
        node = self._left.get(name)
        if node is None or node.value is not None:
            return False
        del self._left[name]
        return True

    def _fault(self, name: str, code: str, message: str) -> Exception:
        return _Fault(f"{self._path}{name}", code, message)
