"""Row security, grants, and the functions that resolve what must be known before a tenant is."""

from django.db import migrations

from tenants.rls import grant, let_read, lookup_function, protect

CACHE_TABLE = migrations.RunSQL(
    """
    CREATE UNLOGGED TABLE cache_entries (
        cache_key varchar(255) PRIMARY KEY, value text NOT NULL, expires timestamptz NOT NULL
    );
    CREATE INDEX cache_entries_expires ON cache_entries (expires);
    """,
    "DROP TABLE cache_entries",
)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial"), ("sessions", "0001_initial")]

    operations = [
        CACHE_TABLE,
        grant(["users"], "SELECT, INSERT, UPDATE"),
        grant(["django_session", "cache_entries"], "SELECT, INSERT, UPDATE, DELETE"),
        grant(["django_migrations"], "SELECT"),
        protect("tenants", grants="SELECT, INSERT, UPDATE, DELETE", key="id"),
        grant(["SEQUENCE tenants_id_seq"], "USAGE"),
        protect("memberships"),
        protect("invitations"),
        protect("api_tokens"),
        protect("audit_events", grants="SELECT, INSERT"),
        let_read("lookup", "tenants", "id, slug"),
        let_read("lookup", "memberships", "id, tenant_id, user_id"),
        let_read("lookup", "invitations", "id, tenant_id, digest"),
        let_read("lookup", "api_tokens", "id, tenant_id, public_id"),
        let_read("janitor", "tenants", "id"),
        let_read("owner", "tenants", "id, slug"),  # data migrations go from tenant to tenant
        lookup_function("lookup_tenant(text)", "bigint", "SELECT id FROM tenants WHERE slug = $1"),
        lookup_function(
            "lookup_membership(bigint, text)",
            "TABLE (tenant_id bigint, membership_id bigint)",
            "SELECT m.tenant_id, m.id FROM memberships m JOIN tenants t ON t.id = m.tenant_id "
            "WHERE m.user_id = $1 AND t.slug = $2",
        ),
        lookup_function(
            "lookup_memberships(bigint)",
            "TABLE (tenant_id bigint, membership_id bigint)",
            "SELECT m.tenant_id, m.id FROM memberships m WHERE m.user_id = $1",
        ),
        lookup_function(
            "lookup_invitation(bytea)",
            "TABLE (tenant_id bigint, invitation_id bigint)",
            "SELECT i.tenant_id, i.id FROM invitations i WHERE i.digest = $1",
        ),
        lookup_function(
            "lookup_token(text)",
            "TABLE (tenant_id bigint, token_id bigint)",
            "SELECT t.tenant_id, t.id FROM api_tokens t WHERE t.public_id = $1",
        ),
    ]
