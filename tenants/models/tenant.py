"""The organisation that owns data."""

from django.core.validators import RegexValidator
from django.db import connection, models
from django.utils.translation import gettext_lazy

from tenants.scope import tenant_scope


class TenantManager(models.Manager["Tenant"]):
    def create_tenant(self, *, slug: str, name: str, is_demo: bool = False) -> "Tenant":
        """A new organisation. Its id is drawn first: row security lets a tenant be written in its own scope only."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT nextval(pg_get_serial_sequence('tenants', 'id'))")
            tenant_id = int(cursor.fetchone()[0])
        tenant = Tenant(pk=tenant_id, slug=slug, name=name, is_demo=is_demo)
        with tenant_scope(tenant_id):
            tenant.full_clean()
            tenant.save(force_insert=True)
        return tenant


class Tenant(models.Model):
    """One organisation. All data belongs to exactly one."""

    slug = models.CharField(
        max_length=40,
        unique=True,
        validators=[
            RegexValidator(r"^[a-z0-9][a-z0-9-]*$", gettext_lazy("Lower-case letters, digits and dashes only."))
        ],
    )
    name = models.CharField(max_length=120)
    is_demo = models.BooleanField(default=False)
    masks_stamp = models.BigIntegerField(
        default=0, db_default=0, help_text="Drawn at random with each change of a masking rule; 0: it never had one."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantManager()

    class Meta:
        db_table = "tenants"

    def __str__(self) -> str:
        return self.name
