"""Users, their memberships with roles, and invitations."""

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.base import TenantManager, TenantModel, tenant_key


class Role(models.TextChoices):
    """What a member may do. Each role includes the ones before it."""

    VIEWER = "viewer", _("Viewer")
    OPERATOR = "operator", _("Operator")
    ADMIN = "admin", _("Admin")

    @property
    def rank(self) -> int:
        return list(Role).index(self)

    def includes(self, other: "Role") -> bool:
        return self.rank >= other.rank


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.full_clean(exclude=["password"])
        user.save()
        return user

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser):
    """A person who signs in by e-mail. Belongs to no tenant: memberships say where they may work."""

    email = models.EmailField(
        max_length=254, unique=True, error_messages={"unique": _("This e-mail address is taken.")}
    )
    name = models.CharField(max_length=120, blank=True)
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)
    language = models.CharField(max_length=10, blank=True, help_text="Of the pages; empty: what the browser asks for.")
    review_settings = models.JSONField(
        default=dict, blank=True, help_text="How this person reviews: `keys` by action, `advance` after a label."
    )

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects = UserManager()

    class Meta:
        db_table = "users"
        constraints = [
            # One spelling each: unique then means what people mean by it.
            models.CheckConstraint(condition=models.Q(email=Lower("email")), name="users_email_lower_check")
        ]

    def __str__(self) -> str:
        return self.name or self.email


class Membership(TenantModel):
    """A user in a tenant, with a role."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)
    role = models.TextField(choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantManager["Membership"]()

    class Meta:
        db_table = "memberships"
        constraints = [
            tenant_key("memberships"),
            models.UniqueConstraint(fields=["tenant", "user"], name="memberships_user_key"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="memberships_role_check"),
        ]
        indexes = [models.Index(fields=["user"], name="memberships_user_idx")]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.role}"

    def may(self, role: Role) -> bool:
        """Does this member's role include `role`?"""
        return Role(self.role).includes(role)


class Invitation(TenantModel):
    """A link by which a person joins a tenant. Only the hash of its secret is stored."""

    digest = models.BinaryField(max_length=32)
    email = models.EmailField(max_length=254, blank=True, help_text="Empty: whoever has the link may join.")
    role = models.TextField(choices=Role.choices)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    accepted_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    revoked_at = models.DateTimeField(null=True)

    objects = TenantManager["Invitation"]()

    class Meta:
        db_table = "invitations"
        constraints = [
            tenant_key("invitations"),
            models.UniqueConstraint(fields=["tenant", "digest"], name="invitations_digest_key"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="invitations_role_check"),
        ]
        indexes = [models.Index(fields=["digest"], name="invitations_digest_idx")]

    def __str__(self) -> str:
        return f"invitation {self.pk} as {self.role}"

    @property
    def is_open(self) -> bool:
        return self.accepted_at is None and self.revoked_at is None and self.expires_at > timezone.now()
