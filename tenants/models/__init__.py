"""Organisations, the people in them, and what they may do."""

from tenants.models.audit import AuditEvent
from tenants.models.base import TenantManager, TenantModel, TenantQuerySet
from tenants.models.endpoint import ModelEndpoint
from tenants.models.exchange import (
    ExchangeCustomer,
    ExchangeDesk,
    ExchangeOrder,
    ExchangeRate,
    ExchangeRequisites,
)
from tenants.models.mask import MaskRule
from tenants.models.people import Invitation, Membership, Role, User
from tenants.models.secret import Purpose, Secret, SecretUse
from tenants.models.settings import TenantSettings
from tenants.models.style import Skill, Style, StyleVersion
from tenants.models.tenant import Tenant
from tenants.models.token import ApiToken, Scope
from tenants.models.tool import HttpToolRow, HttpToolVersion, ToolSwitch

__all__ = [
    "ApiToken",
    "AuditEvent",
    "ExchangeCustomer",
    "ExchangeDesk",
    "ExchangeOrder",
    "ExchangeRate",
    "ExchangeRequisites",
    "HttpToolRow",
    "HttpToolVersion",
    "Invitation",
    "MaskRule",
    "Membership",
    "ModelEndpoint",
    "Purpose",
    "Role",
    "Scope",
    "Secret",
    "SecretUse",
    "Skill",
    "Style",
    "StyleVersion",
    "Tenant",
    "TenantManager",
    "TenantModel",
    "TenantQuerySet",
    "TenantSettings",
    "ToolSwitch",
    "User",
]
