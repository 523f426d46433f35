"""Organisations, the people in them, and what they may do."""

from tenants.models.audit import AuditEvent
from tenants.models.base import TenantManager, TenantModel, TenantQuerySet
from tenants.models.people import Invitation, Membership, Role, User
from tenants.models.tenant import Tenant
from tenants.models.token import ApiToken, Scope

__all__ = [
    "ApiToken",
    "AuditEvent",
    "Invitation",
    "Membership",
    "Role",
    "Scope",
    "Tenant",
    "TenantManager",
    "TenantModel",
    "TenantQuerySet",
    "User",
]
