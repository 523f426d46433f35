"""What all that writes cases shares: numbers, versions, checks and conflicts. Needs an open tenant scope."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NoReturn

from django.core.exceptions import ValidationError
from django.db import connection
from django.utils import timezone
from django.utils.translation import gettext as _

from engine.errors import EngineError
from quality import languages
from quality.cases import schema
from quality.cases.canonical import canonical_arguments
from quality.cases.toolset import Toolset
from quality.cases.values import key_of, read_exact
from quality.improve.case_record import record_of
from quality.ingest.jsontext import MAX_BYTES, JsonError, parse, storable
from quality.models import Case, CaseVersion
from quality.privacy import rows
from tenants import audit, masks
from tenants.masking.reading import Reading
from tenants.models import ApiToken, User
from tenants.scope import current_tenant_id

MAX_BEHAVIOR_CHARS = 10_000
MAX_NOTE_CHARS = 2_000
MAX_TAGS = 20
MAX_TAG_CHARS = 60
MAX_NUMBER = 2**31 - 1


class NoSuchCase(LookupError):
    """The tenant has no such case."""


class CaseConflict(Exception):
    """A change that came too late. `case` is what is there now."""

    code = "conflict"

    def __init__(self, case: Case, message: str) -> None:
        super().__init__(message)
        self.case = case


class StaleCase(CaseConflict):
    code = "stale_case"

    def __init__(self, case: Case) -> None:
        told = _("%(ref)s was changed meanwhile: it is at version %(version)s now.")
        super().__init__(case, told % {"ref": case.ref, "version": case.version})


class AlreadyArchived(CaseConflict):
    code = "already_archived"

    def __init__(self, case: Case) -> None:
        super().__init__(case, _("%(ref)s is archived. Restore it first.") % {"ref": case.ref})


class NotArchived(CaseConflict):
    code = "not_archived"

    def __init__(self, case: Case) -> None:
        super().__init__(case, _("%(ref)s is active already.") % {"ref": case.ref})


def lock_numbers() -> None:
    """Let nobody else take a number of this tenant until the transaction ends: what is undone leaves no gap."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('case numbers', %s))", [current_tenant_id()])


def next_number() -> int:
    """The number of the next case; after `lock_numbers`."""
    newest = Case.objects.order_by("-number").values_list("number", flat=True).first() or 0
    if newest >= MAX_NUMBER:
        refuse("id", "no_number_left", _("REG-%(number)s is the last number there is.") % {"number": newest})
    return newest + 1


def add(case: Case, *, note: str, by: User, token: ApiToken | None, action: str, origin: bytes | None = None) -> Case:
    """Store a new case with its first version here."""
    _mask(case)
    case.same_sha256 = same_sha256(case)
    case.save(force_insert=True)
    _write(case, note=note, by=by, token=token, action=action, origin=origin)
    return case


def change(case: Case, *, note: str, by: User, token: ApiToken | None, action: str, **columns: Any) -> Case:
    """Store a change of a locked case as its next version."""
    before = record_of(case)
    for name, value in columns.items():
        setattr(case, name, value)
    case.version += 1
    case.updated_at = timezone.now()
    case.save(update_fields=[*{*columns, *_mask(case)}, "version", "updated_at"])
    _write(case, note=note, by=by, token=token, action=action, before=before, changed=sorted(columns))
    return case


def _mask(case: Case) -> list[str]:
    """Mask what the tenant keeps nothing raw of; the names of the columns that changed. Raises ValidationError for an
    expectation that says nothing without what is masked."""
    masker = masks.at_write()
    changed = rows.mask(case, Reading(masker)) if masker else []
    if "expectation" in changed and schema.check(case.expectation):
        refuse("expectation", "masked", _("It expects a value that is masked here: expect it in another way."))
    return changed


def locked(number: int) -> Case:
    """The case, locked until the transaction ends; raises NoSuchCase."""
    case = Case.objects.select_for_update(of=("self",)).filter(number=number).first()
    if case is None:
        raise NoSuchCase(_("There is no case REG-%(number)s.") % {"number": number})
    return case


def _write(
    case: Case,
    *,
    note: str,
    by: User,
    token: ApiToken | None,
    action: str,
    before: str | None = None,
    changed: Iterable[str] = (),
    origin: bytes | None = None,
) -> None:
    """The version, and the line in the audit log."""
    record = record_of(case)
    if len(record.encode()) > MAX_BYTES:
        refuse(
            "",
            "too_large",
            _("The case would take %(size)s bytes as a line; the limit is %(limit)s.")
            % {"size": languages.number(len(record.encode())), "limit": languages.number(MAX_BYTES)},
        )
    CaseVersion.objects.create(
        case=case,
        number=case.version,
        data=record,
        note=note,
        by=by,
        token_id=token.pk if token else None,
        at=case.updated_at if before else timezone.now(),
        origin_sha256=origin,
    )
    audit.record(
        f"case.{action}",
        object_type="case",
        object_id=case.ref,
        actor=by,
        token=token,
        before={"record": before} if before else None,
        after={"record": record},
        detail={"version": case.version, "changed": list(changed)},
    )


def same_sha256(case: Case) -> bytes:
    """Equal for duplicates: same tool, same canonical arguments, and the model was given the same messages."""
    parameters = Toolset.read(case.tools).parameters(case.tool_name) if case.tools else None
    arguments = None if case.args is None else canonical_arguments(case.args, parameters)
    parts = [case.tool_name, arguments, canonical_text(case.messages)]
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def canonical_text(text: str) -> str:
    """The same for JSON texts that mean the same."""
    try:
        return key_of(read_exact(text))
    except (EngineError, ValueError, RecursionError):  # a name that stands twice, or nested too deep: as it is spelled
        return text


# --- checks: each gives the value to store, or raises ValidationError for its field ----------------------------------


def checked_behavior(text: str) -> str:
    text = checked_text("behavior", text, MAX_BEHAVIOR_CHARS)
    if not text:
        refuse("behavior", "required", _("Say in words what is expected."))
    return text


def checked_expectation(text: str) -> str:
    """JSON text of a usable expectation. What the case's tools make impossible is for `doubts` to tell: a reviewer may
    well expect a tool that was not offered then."""
    faults = schema.check(text)
    if faults:
        errors = [
            ValidationError(f"{fault.path}: {fault.message}" if fault.path else fault.message, code=fault.code)
            for fault in faults[:20]
        ]
        raise ValidationError({"expectation": errors})
    checked_json("expectation", text)
    return text


def doubts(expectation: str, tools: str | None) -> list[schema.Fault]:
    """What is probably not meant: calls that no model could make with these tools, steps that say nothing."""
    if schema.check(expectation):
        return []
    return [*schema.check(expectation, tools), *schema.advise(expectation, tools)]


_STUB_MEMBERS = {"tool", "args", "arguments", "result", "isError"}


def checked_stubs(text: str) -> str:
    """JSON text of a list of stubs."""
    if fault := stubs_fault(checked_json("stubs", text)):
        refuse("stubs", "invalid", fault)
    return text


def stubs_fault(stubs: Any) -> str:
    """What is wrong with stubs, or nothing. A recorded one has the `arguments` of its call, a written one has `args`:
    matchers of the calls that it answers."""
    if not isinstance(stubs, list):
        return _("Expected a list of stubs.")
    for number, stub in enumerate(stubs):
        if not isinstance(stub, dict) or not isinstance(stub.get("tool"), str) or "result" not in stub:
            return _("Stub %(number)s needs a tool and a result.") % {"number": number}
        if unknown := sorted(set(stub) - _STUB_MEMBERS):
            return _("Stub %(number)s has a member %(member)s; known: %(known)s.") % {
                "number": number,
                "member": repr(unknown[0][:80]),
                "known": ", ".join(sorted(_STUB_MEMBERS)),
            }
        if not isinstance(stub.get("args", {}), dict) or not isinstance(stub.get("isError", False), bool):
            return _("Stub %(number)s: args is an object of matchers, isError is true or false.") % {"number": number}
    return ""


def checked_tags(tags: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(checked_text("tags", tag, MAX_TAG_CHARS) for tag in tags))
    if len(found) > MAX_TAGS:
        refuse("tags", "too_many", _("A case has %(limit)s tags at most.") % {"limit": MAX_TAGS})
    if "" in found:
        refuse("tags", "blank", _("A tag has at least one character."))
    if any("," in tag or len(tag.splitlines()) > 1 for tag in found):
        refuse("tags", "separator", _("A tag has no comma and no line break: they separate tags."))
    return found


def checked_note(note: str) -> str:
    return checked_text("note", note, MAX_NOTE_CHARS)


def checked_text(field: str, value: str, limit: int) -> str:
    value = value.strip()
    if len(value) > limit:
        refuse(
            field,
            "too_long",
            _("It has %(count)s characters; the limit is %(limit)s.")
            % {"count": languages.number(len(value)), "limit": languages.number(limit)},
        )
    if value != storable(value):
        refuse(field, "unstorable", _("It holds a NUL character or half a surrogate pair. Take it out."))
    return value


def checked_json(field: str, text: str) -> Any:
    """The value of strict JSON text."""
    try:
        return parse(text.encode()).value
    except JsonError as error:
        refuse(field, error.code, error.message)
    except UnicodeEncodeError:
        refuse(field, "unstorable", _("It holds half a surrogate pair. Write it as an escape."))


def refuse(field: str, code: str, message: str) -> NoReturn:
    raise ValidationError({field or "__all__": ValidationError(message, code=code)})
