"""What the database itself guarantees, asked of its catalogue and of real transactions (T1–T5, T7, T11, T15)."""

from itertools import count

import psycopg
import pytest
from django.apps import apps
from django.db import IntegrityError, ProgrammingError, connection, connections, transaction
from django.db.migrations.state import ProjectState
from django.db.utils import Error as DatabaseError

from tenants.models import ApiToken, AuditEvent, Membership, Role, Tenant, TenantModel, User
from tenants.rls import each_tenant
from tenants.roles import runtime_role_fault
from tenants.scope import TenantScopeError, current_tenant_id, tenant_scope
from tests import environment

# Tables that belong to no tenant. A new one is a decision, taken here.
SHARED_TABLES = {
    "auth_group", "auth_group_permissions", "auth_permission", "cache_entries", "django_content_type",
    "django_migrations", "django_session", "signin_attempts", "users",
}  # fmt: skip
SHARED_UNIQUES = {"tenants", *SHARED_TABLES}


def rows(query: str, params: list | None = None) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return cursor.fetchall()


def superuser() -> psycopg.Connection:
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    return psycopg.connect(url, autocommit=True)


@pytest.fixture
def two(db) -> tuple[Tenant, Tenant]:
    """Two tenants, each with one member, the same user name in both."""
    tenants = []
    for slug in ("alpha", "beta"):
        tenant = Tenant.objects.create_tenant(slug=slug, name=slug.title())
        with tenant_scope(tenant):
            Membership.objects.create(user=User.objects.create_user(f"{slug}@example.com"), role=Role.ADMIN)
        tenants.append(tenant)
    return tenants[0], tenants[1]


def tenant_tables() -> list[str]:
    found = rows(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' "
        "WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY 1"
    )
    return [name for (name,) in found]


def test_every_table_has_a_tenant_or_is_on_the_short_list(db):
    every = {
        name
        for (name,) in rows(
            "SELECT relname FROM pg_class WHERE relkind IN ('r','p') AND relnamespace = 'public'::regnamespace"
        )
    }
    assert every - set(tenant_tables()) == {"tenants", *SHARED_TABLES}


def test_every_model_with_a_tenant_comes_from_the_base_model(db):
    for model in apps.get_app_config("tenants").get_models(), apps.get_app_config("quality").get_models():
        for each in model:
            assert issubclass(each, TenantModel) or each in (Tenant, User), each


def test_row_security_is_on_and_forced_with_both_checks_everywhere(db):
    tables = [*tenant_tables(), "tenants"]
    assert len(tables) > 8
    for table in tables:
        ((enabled, forced),) = rows(
            "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = %s::regclass", [table]
        )
        assert enabled, table
        assert forced, table
        policies = rows(
            "SELECT polname, polqual IS NOT NULL, polwithcheck IS NOT NULL, polcmd FROM pg_policy "
            "WHERE polrelid = %s::regclass",
            [table],
        )
        writing = [policy for policy in policies if policy[3] == "*"]
        assert [policy[1:3] for policy in writing] == [(True, True)], table
        assert all(policy[3] in ("*", "r") for policy in policies), table


def test_every_policy_says_the_same(db):
    said = rows(
        """
        SELECT DISTINCT replace(pg_get_expr(polqual, polrelid), 'tenant_id', 'id'),
            replace(pg_get_expr(polwithcheck, polrelid), 'tenant_id', 'id') FROM pg_policy WHERE polcmd = '*'
        """
    )
    assert len(said) == 1
    assert said[0][0] == said[0][1]
    assert "current_setting('app.tenant'" in said[0][0]


def test_the_suite_itself_runs_as_a_role_that_row_security_binds(db):
    assert rows("SELECT current_user") == [(f"{environment.PREFIX}app",)]
    assert runtime_role_fault(connection) is None


@pytest.mark.parametrize("alias", ["owner"])
def test_a_role_that_owns_the_tables_is_refused(db, alias):
    assert "owns tenant tables" in (runtime_role_fault(connections[alias]) or "")


def test_without_a_scope_managers_raise_and_raw_sql_sees_nothing(two):
    with pytest.raises(TenantScopeError):
        Membership.objects.count()
    assert rows("SELECT count(*) FROM memberships") == [(0,)]
    assert rows("SELECT count(*) FROM tenants") == [(0,)]
    with connection.cursor() as cursor, cursor.copy("COPY (SELECT * FROM memberships) TO STDOUT") as copy:
        assert b"".join(copy) == b""
    with pytest.raises(ProgrammingError, match="row-level security"):
        rows(
            "INSERT INTO memberships (tenant_id, user_id, role, created_at) "
            "SELECT %s, id, 'admin', now() FROM users RETURNING id",
            [two[0].pk],
        )


def test_inside_a_scope_only_that_tenant_exists(two):
    alpha, beta = two
    with tenant_scope(alpha):
        assert rows("SELECT count(*) FROM memberships") == [(1,)]  # positive control: its own row is there
        assert rows("SELECT slug FROM tenants") == [("alpha",)]
        assert rows("SELECT count(*) FROM memberships WHERE tenant_id = %s", [beta.pk]) == [(0,)]
        assert Membership.objects.get().tenant_id == alpha.pk
        assert rows("UPDATE memberships SET role = 'viewer' WHERE tenant_id = %s RETURNING id", [beta.pk]) == []
        assert rows("DELETE FROM memberships WHERE tenant_id = %s RETURNING id", [beta.pk]) == []
    with tenant_scope(beta):
        assert Membership.objects.get().role == Role.ADMIN


def test_a_row_cannot_be_written_for_or_moved_to_another_tenant(two):
    alpha, beta = two
    user = User.objects.create_user("third@example.com")
    with pytest.raises(ProgrammingError, match="row-level security"), tenant_scope(alpha):
        Membership.objects.create(tenant=beta, user=user, role=Role.VIEWER)
    with pytest.raises(ProgrammingError, match="row-level security"), tenant_scope(alpha):
        rows("UPDATE memberships SET tenant_id = %s RETURNING id", [beta.pk])


def test_a_scope_refuses_another_tenant_inside_and_nests_for_its_own(two):
    alpha, beta = two
    with tenant_scope(alpha):
        with tenant_scope(alpha):
            assert current_tenant_id() == alpha.pk
        assert Membership.objects.count() == 1
        with pytest.raises(TenantScopeError), tenant_scope(beta):
            pass
        assert Membership.objects.count() == 1


def test_a_scope_does_not_outlive_its_transaction_on_the_same_backend(two):
    alpha, beta = two

    def state() -> tuple[int, str]:
        return rows("SELECT pg_backend_pid(), coalesce(current_setting('app.tenant', true), '')")[0]

    with tenant_scope(alpha):
        inside = state()
    after = state()
    with pytest.raises(RuntimeError, match="boom"), tenant_scope(beta):
        raise RuntimeError("boom")
    after_error = state()
    with pytest.raises(DatabaseError), tenant_scope(alpha):
        rows("SELECT 1/0")
    after_abort = state()
    assert inside == (after[0], str(alpha.pk))
    assert {after, after_error, after_abort} == {(inside[0], "")}  # one backend all along: a real reuse


def test_a_scope_inside_a_callers_transaction_is_taken_back_at_its_end(two):
    alpha, _ = two
    with transaction.atomic():
        with tenant_scope(alpha):
            assert rows("SELECT count(*) FROM memberships") == [(1,)]
        assert rows("SELECT count(*) FROM memberships") == [(0,)]
        with pytest.raises(RuntimeError), tenant_scope(alpha):
            raise RuntimeError
        assert rows("SELECT count(*) FROM memberships") == [(0,)]


def test_every_key_between_tenant_tables_carries_the_tenant(db):
    """Key checks skip the policies: a plain key would take another tenant's row."""
    keys = rows(
        """
        SELECT con.conname, con.conrelid::regclass::text, con.confrelid::regclass::text,
               (SELECT array_agg(attname::text ORDER BY ord) FROM unnest(con.conkey) WITH ORDINALITY k(num, ord)
                JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = k.num)
        FROM pg_constraint con WHERE con.contype = 'f' AND con.connamespace = 'public'::regnamespace
        """
    )
    tables = set(tenant_tables())
    between = [key for key in keys if key[1] in tables and key[2] in tables]
    assert len(between) >= 10
    for name, _, _, columns in between:
        assert columns[0] == "tenant_id", name
        assert len(columns) == 2, name
    for model in (*apps.get_app_config("tenants").get_models(), *apps.get_app_config("quality").get_models()):
        for field in model._meta.get_fields():
            target = getattr(field, "related_model", None)
            if field.concrete and target and issubclass(target, TenantModel):
                assert any(key[1] == model._meta.db_table and key[3] == ["tenant_id", field.column] for key in keys), (
                    field
                )


def test_no_key_lets_a_child_point_at_another_tenants_parent(two):
    """As a superuser with row security off: the keys alone must hold."""
    alpha, beta = two
    with superuser() as admin:
        keys = admin.execute(
            """
            SELECT con.conrelid::regclass::text, a.attname, con.confrelid::regclass::text FROM pg_constraint con
            JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = con.conkey[2]
            WHERE con.contype = 'f' AND array_length(con.conkey, 1) = 2
            """
        ).fetchall()
        assert len(keys) >= 10
        for child, column, parent in keys:
            admin.execute("BEGIN")
            admin.execute("SET LOCAL session_replication_role = replica")  # parents need no parents of their own here
            parent_id = _bare_row(admin, parent, beta.pk)
            admin.execute("SET LOCAL session_replication_role = origin")
            with pytest.raises(psycopg.errors.ForeignKeyViolation):  # noqa: PT012  (deferred: it shows at the end)
                _bare_row(admin, child, alpha.pk, **{column: parent_id})
                admin.execute("SET CONSTRAINTS ALL IMMEDIATE")
            admin.execute("ROLLBACK")
            # Positive control: within one tenant the same reference holds.
            admin.execute("BEGIN")
            admin.execute("SET LOCAL session_replication_role = replica")
            parent_id = _bare_row(admin, parent, alpha.pk)
            child_id = _bare_row(admin, child, alpha.pk, **{column: parent_id})
            assert child_id
            admin.execute("ROLLBACK")


_numbers = count(1)  # a table that points at itself gets two rows, and their numbers may have to differ


def _bare_row(admin: psycopg.Connection, table: str, tenant_id: int, **given: object) -> int:
    """Insert a row with made-up values wherever a column must have one; returns its id."""
    columns = admin.execute(
        """
        SELECT column_name, data_type, is_identity FROM information_schema.columns
        WHERE table_name = %s AND is_nullable = 'NO' AND column_default IS NULL
        """,
        [table],
    ).fetchall()
    fill = {
        "bigint": 900_001, "smallint": 1, "integer": next(_numbers), "boolean": False, "bytea": b"x",
        "text": "x", "character varying": "x", "timestamp with time zone": "2026-01-01T00:00Z", "ARRAY": [],
        "jsonb": "{}", "double precision": 1.0, "numeric": 1, "uuid": "00000000-0000-0000-0000-000000000001",
    }  # fmt: skip
    states = {
        "agent_tool_calls": "result", "agent_tool_call_improvement_proposals": "pending", "coach_items": "open",
        "quarantine_proposals": "pending", "replay_notifications": "pending", "label_suggestions": "open",
        "review_assignments": "claimed", "review_queues": "open", "webhook_deliveries": "pending",
    }  # fmt: skip
    kinds = {
        "coach_items": "guidance", "exports": "calls", "replay_findings": "disputed", "review_queues": "fixed",
        "bulk_actions": "label", "mask_rules": "key",
    }  # fmt: skip
    called = {"replay_sides": "baseline", "review_queues": f"x{next(_numbers)}"}
    checked = {"state": states.get(table, "done"), "label": "other", "purpose": "tool", "action": "label",
               "role": "viewer", "name": called.get(table, "x"), "channel": "api",
               "kind": kinds.get(table, "approve"), "status": "active",
               "format": "jsonl", "ordering": "newest", "page": "calls", "seen_by": "admin"}  # fmt: skip
    values = (
        {name: checked.get(name, fill[kind]) for name, kind, identity in columns if identity == "NO"}
        | {"tenant_id": tenant_id}
        | given
    )
    names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
    return admin.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING id", list(values.values())
    ).fetchone()[0]


def test_uniqueness_is_per_tenant(db):
    """A unique value across tenants would tell one that another has it."""
    indexes = rows(
        """
        SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, i.indisprimary, a.attname
        FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'public'::regnamespace
        LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indisunique
        """
    )
    checked = 0
    for table, index, primary, first in indexes:
        if table in SHARED_UNIQUES or (primary and first == "id"):  # ids are drawn by a sequence, never chosen
            continue
        assert first == "tenant_id", index
        checked += 1
    assert checked > 15


def test_the_runtime_role_has_no_right_that_skips_the_policies(db):
    for table in [*tenant_tables(), "tenants"]:
        for right in ("TRUNCATE", "REFERENCES", "TRIGGER"):
            assert rows("SELECT has_table_privilege(current_user, %s, %s)", [table, right]) == [(False,)], (
                table,
                right,
            )


@pytest.mark.parametrize(
    "table",
    [
        "audit_events",
        "agent_tool_call_feedback_events",
        "agent_tool_call_decisions",
        "agent_tool_call_proposal_events",
        "agent_tool_call_regression_case_versions",
        "guideline_versions",
    ],
)
def test_append_only_tables_can_be_neither_changed_nor_emptied(db, table):
    for right in ("UPDATE", "DELETE"):
        assert rows("SELECT has_table_privilege(current_user, %s, %s)", [table, right]) == [(False,)]
    assert rows("SELECT has_table_privilege(current_user, %s, 'INSERT')", [table]) == [(True,)]


def test_the_lookup_functions_return_ids_and_belong_to_a_role_that_cannot_sign_in(two):
    functions = rows(
        """
        SELECT p.proname, r.rolname, r.rolcanlogin, r.rolbypassrls, pg_get_function_result(p.oid), p.proconfig
        FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
        WHERE p.prosecdef AND p.pronamespace = 'public'::regnamespace
          AND p.proname NOT IN ('follow_replies', 'mask_history')
        """
    )
    assert {function[0] for function in functions} == {
        "lookup_tenant", "lookup_membership", "lookup_memberships", "lookup_invitation", "lookup_token",
            "lookup_secret_kids",
    }  # fmt: skip
    for name, role, can_login, bypasses, result, config in functions:
        assert role == f"{environment.PREFIX}lookup", name
        assert not can_login, name
        assert not bypasses, name
        assert set(result.replace("TABLE(", "").replace(")", "").replace(",", "").split()) <= {
            "bigint", "tenant_id", "membership_id", "invitation_id", "token_id",
            "kid", "character", "varying", "num_secrets",  # which keys are in use, for their operator
        }, name  # fmt: skip
        assert [setting.partition("=")[0] for setting in config] == ["search_path"], name


def test_the_function_that_moves_history_belongs_to_the_owner_who_sees_one_tenant_at_a_time(two):
    """Where an event hangs may follow its reply; `tests/ingest/test_otlp_labels.py` holds it to that."""
    (found,) = rows(
        """
        SELECT r.rolname, r.rolbypassrls OR r.rolsuper, p.proconfig, pg_get_function_result(p.oid),
            has_function_privilege('public', p.oid, 'EXECUTE')
        FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner WHERE p.proname = 'follow_replies'
        """
    )
    owner, bypasses, config, result, is_public = found
    assert (owner, bypasses, result, is_public) == (f"{environment.PREFIX}owner", False, "void", False)
    assert [setting.partition("=")[0] for setting in config] == ["search_path"]


def test_a_data_migration_reaches_the_rows_of_every_tenant(two):
    """Under FORCE the owner sees no row without a scope; `each_tenant` is what data steps use."""
    owner = connections["owner"]
    with owner.schema_editor() as editor, owner.cursor() as cursor:
        cursor.execute("UPDATE memberships SET role = 'viewer'")
        assert cursor.rowcount == 0  # the trap
        changed = 0
        state_apps = ProjectState.from_apps(apps).apps
        for tenant_id in each_tenant(editor):
            historical = state_apps.get_model("tenants", "Membership")
            changed += historical._base_manager.using("owner").filter(tenant_id=tenant_id).update(role="operator")
        assert changed == 2
    for tenant in two:
        with tenant_scope(tenant):
            assert Membership.objects.get().role == Role.OPERATOR


def test_an_api_token_of_the_same_public_id_may_exist_in_two_tenants(two):
    for tenant in two:
        with tenant_scope(tenant):
            user = Membership.objects.get().user
            ApiToken.objects.create(name="x", public_id="same", digest=b"x", scopes=["read"], created_by=user)
            with pytest.raises(IntegrityError), transaction.atomic():
                ApiToken.objects.create(name="x", public_id="same", digest=b"x", scopes=["read"], created_by=user)
            assert AuditEvent.objects.count() == 0
