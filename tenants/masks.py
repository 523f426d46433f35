"""Masking rules of a tenant: kept, and made into maskers for a reader, an export, or what comes in.

A masker is made once per stamp of the rules and process. A tenant that never had a rule costs no query.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from tenants import audit
from tenants.masking.masker import Masker, Rule, normal
from tenants.masking.paths import PathFault, parse_path
from tenants.masking.patterns import PatternFault, pattern_of
from tenants.models import ApiToken, MaskRule, Membership, Role, Tenant, User
from tenants.scope import current_tenant_id, tenant_scope

MAX_RULES = 50


class StaleRule(Exception):
    """Somebody else changed the rule in between; `current` is what it is now."""

    def __init__(self, current: MaskRule) -> None:
        super().__init__(str(current))
        self.current = current


@dataclass(frozen=True, slots=True)
class Kept:
    """A rule as plain values, in the order of their names."""

    rule: Rule
    seen_by: str
    keeps_raw: bool
    masks_exports: bool

    def hides_from(self, role: Role | None) -> bool:
        return self.seen_by == MaskRule.SeenBy.NOBODY or role is None or not role.includes(Role(self.seen_by))


# --- Reading ---


def for_reader(tenant: Tenant, role: Role | None) -> Masker | None:
    """What evidence is read through by somebody of this role; None where nothing is masked for them."""
    return _chosen(tenant, lambda rule: rule.hides_from(role)) if tenant.masks_stamp else None


def for_member(membership: Membership) -> Masker | None:
    return for_reader(membership.tenant, Role(membership.role))


def for_token(token: ApiToken) -> Masker | None:
    """A token reads as its maker does."""
    if not token.tenant.masks_stamp:
        return None
    with tenant_scope(token.tenant):
        role = Membership.objects.filter(user=token.created_by_id).values_list("role", flat=True).first()
    return for_reader(token.tenant, Role(role) if role else None)


def for_export(tenant: Tenant, role: Role | None) -> Masker | None:
    """What an export goes through that somebody of this role ordered."""
    if not tenant.masks_stamp:
        return None
    return _chosen(tenant, lambda rule: rule.masks_exports or rule.hides_from(role))


def at_write() -> Masker | None:
    """What evidence of the open scope's tenant goes through before it is stored: rules that keep nothing raw."""
    tenant = Tenant.objects.filter(pk=current_tenant_id()).first()
    if tenant is None or not tenant.masks_stamp:
        return None
    return _chosen(tenant, lambda rule: not rule.keeps_raw)


def _chosen(tenant: Tenant, choose: Callable[[Kept], bool]) -> Masker | None:
    rules = tuple(kept.rule for kept in _kept(tenant.pk, tenant.masks_stamp) if choose(kept))
    return _compiled(tenant.pk, rules) if rules else None


@lru_cache(maxsize=256)
def _kept(tenant_id: int, _stamp: int) -> tuple[Kept, ...]:
    with tenant_scope(tenant_id):
        return tuple(kept_as(row) for row in MaskRule.objects.filter(is_enabled=True).order_by("name"))


def kept_as(row: MaskRule) -> Kept:
    """A row, stored or not, as plain values."""
    rule = Rule(name=row.name, kind=row.kind, expression=row.expression)
    return Kept(rule, row.seen_by, row.keeps_raw, row.masks_exports)


@lru_cache(maxsize=256)
def _compiled(tenant_id: int, rules: tuple[Rule, ...]) -> Masker:
    return Masker(rules, salted_hmac("tenants.masks", str(tenant_id), algorithm="sha256").digest())


def try_out(rules: Sequence[Rule]) -> Masker:
    """A masker of rules that need not be stored, for the open scope's tenant; raises PathFault, PatternFault."""
    return _compiled(current_tenant_id(), tuple(rules))


# --- Keeping ---

_FIELDS = ("name", "kind", "expression", "seen_by", "keeps_raw", "masks_exports", "is_enabled")


@transaction.atomic
def save_rule(
    rule: MaskRule, *, actor: User | None, token: ApiToken | None = None, version: int | None = None
) -> MaskRule:
    """Keep a new rule, or a changed one; `version` is that which its author saw. Raises ValidationError, StaleRule."""
    _one_at_a_time()
    is_new = rule.pk is None
    before = None if is_new else _locked(rule.pk, version)
    if is_new and MaskRule.objects.count() >= MAX_RULES:
        raise ValidationError(
            _("There are %(limit)d rules already, which is as many as there may be.") % {"limit": MAX_RULES}
        )
    rule.name, rule.expression = rule.name.strip(), rule.expression.strip()
    rule.full_clean(validate_constraints=False)
    if MaskRule.objects.filter(name=rule.name).exclude(pk=rule.pk).exists():
        raise ValidationError({"name": ValidationError(_("There is a rule of this name already."), code="taken")})
    if reason := fault_of(rule.kind, rule.expression):
        raise ValidationError({"expression": reason})
    rule.version = 1 if before is None else before.version + 1
    rule.save()
    _changed(rule, "mask.created" if is_new else "mask.changed", actor, token, before=before)
    return rule


@transaction.atomic
def delete_rule(
    rule: MaskRule, *, actor: User | None, token: ApiToken | None = None, version: int | None = None
) -> None:
    """What was masked when it came in stays masked; all else is seen again. Raises StaleRule."""
    _one_at_a_time()
    before = _locked(rule.pk, version)
    pk = rule.pk
    rule.delete()
    rule.pk = pk
    _changed(rule, "mask.deleted", actor, token, before=before, is_gone=True)


def fault_of(kind: str, expression: str) -> str | None:
    """Why an expression cannot be a rule of this kind, for people; None if it can."""
    try:
        match kind:
            case MaskRule.Kind.PATH:
                parse_path(expression)
            case MaskRule.Kind.PATTERN:
                pattern_of(expression)
            case MaskRule.Kind.KEY if not any(normal(name) for name in expression.split(",")):
                return _("Name at least one member: email, phone")
    except (PathFault, PatternFault) as error:
        return str(error)
    return None


def _one_at_a_time() -> None:
    """Names and the number of rules are looked up before a write: no other one comes in between."""
    Tenant.objects.select_for_update(no_key=True).filter(pk=current_tenant_id()).first()


def _locked(pk: int, version: int | None) -> MaskRule:
    row = MaskRule.objects.select_for_update().get(pk=pk)
    if version is not None and row.version != version:
        raise StaleRule(row)
    return row


def _changed(
    rule: MaskRule, action: str, actor: User | None, token: ApiToken | None, *, before: MaskRule | None,
    is_gone: bool = False,
) -> None:  # fmt: skip
    # Not a count: one that was rolled back would come again, and mean other rules to whoever kept them by it.
    Tenant.objects.filter(pk=current_tenant_id()).update(masks_stamp=1 + secrets.randbelow(2**62))
    audit.record(
        action,
        object_type="mask_rule",
        object_id=rule.pk,
        actor=actor,
        token=token,
        before=_state(before),
        after=None if is_gone else _state(rule),
        detail={"name": rule.name, "kind": rule.kind, "seen_by": rule.seen_by, "keeps_raw": rule.keeps_raw},
    )


def _state(rule: MaskRule | None) -> dict[str, object] | None:
    return {name: getattr(rule, name) for name in _FIELDS} if rule else None
