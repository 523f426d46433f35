"""Saved views: a list's filter under a name, one's own or shared, and the one that a list begins with."""

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class ViewPage(models.TextChoices):
    CALLS = "calls", _("Calls")
    REVIEW = "review", _("Review")
    TURNS = "turns", _("Turns")


class SavedView(TenantModel):
    """A filter under a name. Its query is kept as it was saved: what of it is no filter any more is told when it is
    opened, and the rest works."""

    page = models.TextField(choices=ViewPage.choices)
    name = models.CharField(max_length=80)
    query = models.TextField(blank=True, help_text="The filter as a query string.")
    is_shared = models.BooleanField(default=False, help_text="Every member sees it.")
    is_pinned = models.BooleanField(default=True, help_text="It stands as a tab over the list.")
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, help_text="Gone for everybody; its deletion can be undone.")

    objects = TenantManager["SavedView"]()

    class Meta:
        db_table = "saved_views"
        constraints = [
            tenant_key("saved_views"),
            models.UniqueConstraint(
                fields=["tenant", "page", "owner", "name"],
                name="saved_views_name_key",
                condition=Q(deleted_at__isnull=True),
                violation_error_message=_("You have a view of this name already. Choose another name."),
            ),
            models.CheckConstraint(condition=Q(page__in=ViewPage.values), name="saved_views_page_check"),
        ]

    def __str__(self) -> str:
        return self.name


class DefaultView(TenantModel):
    """The view that a list begins with for one person."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)
    page = models.TextField(choices=ViewPage.choices)
    view = models.ForeignKey(SavedView, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False)

    objects = TenantManager["DefaultView"]()

    class Meta:
        db_table = "default_views"
        constraints = [
            tenant_key("default_views"),
            models.UniqueConstraint(fields=["tenant", "user", "page"], name="default_views_user_key"),
            models.CheckConstraint(condition=Q(page__in=ViewPage.values), name="default_views_page_check"),
        ]
        indexes = [models.Index(fields=["tenant", "view"], name="default_views_view_idx")]

    def __str__(self) -> str:
        return f"view {self.view_id} of user {self.user_id}"
