"""Secrets of a tenant: sealed, bound to their row, rotated, and sent only where they were set for (S1, S3, S6, S7)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.management import CommandError, call_command
from django.db import connection

from tenants import envelope, secrets
from tenants.envelope import NoKeys, SecretInvalid
from tenants.keys import Keyring
from tenants.models import AuditEvent, Secret
from tenants.scope import tenant_scope
from tenants.start import refuse_missing_keys
from tenants.versions import current_version

ROOT = Path(__file__).resolve().parents[2]
PLACE = secrets.Place("get_order", "https://api.example.com:443")


def ring(*kids: str) -> Keyring:
    return Keyring({kid: KEYS.setdefault(kid, os.urandom(32)) for kid in kids})


KEYS: dict[str, bytes] = {}


@pytest.fixture
def admin(member):
    return member("admin").user


@pytest.fixture
def secret(inside, admin) -> Secret:
    with inside():
        return secrets.set_secret(name="SHOP_KEY", value="canary-4711", actor=admin)


def test_a_value_is_stored_sealed_and_comes_back_for_its_use(inside, secret):
    with inside():
        with connection.cursor() as cursor:
            cursor.execute("SELECT row_to_json(s)::text || encode(ciphertext, 'escape') FROM secrets s")
            assert "canary" not in cursor.fetchone()[0]
        assert secrets.read(Secret.objects.get(), used_by="get_order", run="turn-1") == "canary-4711"


def test_a_use_is_on_record_with_who_and_why_but_not_the_value(inside, secret):
    with inside():
        secrets.read(secret, used_by="get_order", run="turn-1")
        event = AuditEvent.objects.get(action="secret.used")
        assert event.detail == {"name": "SHOP_KEY", "usedBy": "get_order", "run": "turn-1"}


def test_two_ciphertexts_that_change_places_do_not_open(inside, admin, secret):
    with inside():
        other = secrets.set_secret(name="OTHER", value="canary-0815", actor=admin)
        for column in ("ciphertext", "wrapped_key"):
            with connection.cursor() as cursor:
                cursor.execute(f"UPDATE secrets s SET {column} = o.{column} FROM secrets o WHERE s.id <> o.id")
        for pk in (secret.pk, other.pk):
            # Both columns moved together: all of an envelope is in the other row, and still it does not open.
            with pytest.raises(SecretInvalid):
                secrets.read(Secret.objects.get(pk=pk), used_by="t", run="r")


def test_a_renamed_row_does_not_open(inside, secret):
    with inside():
        Secret.objects.filter(pk=secret.pk).update(name="RENAMED")
        with pytest.raises(SecretInvalid):
            secrets.read(Secret.objects.get(), used_by="t", run="r")


@pytest.mark.parametrize("name", ["", "1KEY", "my-key", "a b", "ключ", "A" * 65])
def test_a_name_that_no_template_can_spell_is_refused(inside, admin, name):
    with inside(), pytest.raises(ValidationError):
        secrets.set_secret(name=name, value="v", actor=admin)


@pytest.mark.parametrize("value", ["", "a\r\nX: y", "a\0", "\ud800", "ü" * 4_001])
def test_a_value_that_no_header_takes_is_refused(inside, admin, value):
    with inside(), pytest.raises(ValidationError):
        secrets.set_secret(name="KEY", value=value, actor=admin)


def test_without_keys_nothing_is_kept(inside, admin, settings):
    settings.APP_KEKS = Keyring()
    with inside(), pytest.raises(NoKeys):
        secrets.set_secret(name="KEY", value="v", actor=admin)


def test_each_write_raises_the_version_of_the_settings(inside, admin, secret):
    with inside():
        before = current_version()
        secrets.set_secret(name="SHOP_KEY", value="next", actor=admin)
        assert current_version() == before + 1
        secrets.delete_secret(secret=secret, actor=admin)
        assert current_version() == before + 2


@pytest.mark.slow
def test_of_a_hundred_thousand_envelopes_no_two_share_a_nonce_or_a_data_key() -> None:
    """S9: nonces under the wrapping key are random and never come twice."""
    keyring, bound_to = ring("old"), envelope.binding(tenant_id=1, secret_id=1, name="KEY")
    sealed = [envelope.seal("the same value", keyring, bound_to) for _ in range(100_000)]
    nonces = {one.wrapped_key[: envelope.NONCE_BYTES] for one in sealed}
    assert len(nonces) == len(sealed)
    assert len({one.ciphertext for one in sealed}) == len(sealed)
    again = {envelope.rewrap(one, keyring, bound_to).wrapped_key[: envelope.NONCE_BYTES] for one in sealed[:10_000]}
    assert len(again) == 10_000
    assert not again & nonces


class TestPlaces:
    """S6: a secret goes with the tool and to the host that it was set for."""

    def test_the_first_tool_that_refers_to_a_secret_takes_it(self, inside, secret):
        with inside():
            assert secrets.place_tool(PLACE, ["SHOP_KEY"]) == []
            assert secrets.read_for_tool(PLACE, ["SHOP_KEY"], run="r") == {"SHOP_KEY": "canary-4711"}

    def test_another_tool_has_to_be_given_it_again(self, inside, secret):
        with inside():
            secrets.place_tool(PLACE, ["SHOP_KEY"])
            other = secrets.Place("steal", "https://attacker.example:443")
            assert secrets.place_tool(other, ["SHOP_KEY"]) == ["SHOP_KEY"]
            assert secrets.read_for_tool(other, ["SHOP_KEY"], run="r") == {}

    def test_another_host_detaches_it_and_coming_back_does_not_attach_it(self, inside, admin, secret):
        moved = secrets.Place("get_order", "https://attacker.example:443")
        with inside():
            secrets.place_tool(PLACE, ["SHOP_KEY"])
            assert secrets.place_tool(moved, ["SHOP_KEY"]) == ["SHOP_KEY"]
            assert secrets.place_tool(PLACE, ["SHOP_KEY"]) == ["SHOP_KEY"]
            secrets.set_secret(name="SHOP_KEY", value="canary-4711", actor=admin, places=[PLACE])
            assert secrets.missing_at(PLACE, ["SHOP_KEY"]) == []

    def test_a_secret_that_a_tool_no_longer_names_is_no_longer_its_own(self, inside, secret):
        with inside():
            secrets.place_tool(PLACE, ["SHOP_KEY"])
            secrets.place_tool(PLACE, [])
            assert secrets.read_for_tool(PLACE, ["SHOP_KEY"], run="r") == {}

    def test_keys_of_models_are_none_of_a_tools(self, inside, admin):
        from tenants.models import Purpose

        with inside():
            secrets.set_secret(name="model_key", value="v", actor=admin, purpose=Purpose.MODEL)
            assert secrets.place_tool(PLACE, ["model_key"]) == ["model_key"]
            assert secrets.read_for_tool(PLACE, ["model_key"], run="r") == {}


class TestRotation:
    @pytest.fixture
    def old(self, settings, tenant, other_tenant, member):
        """Seven secrets in each of two tenants, under the key `old`."""
        settings.APP_KEKS = ring("old")
        for each in (tenant, other_tenant):
            user = member("admin", tenant=each).user
            with tenant_scope(each):
                for number in range(7):
                    secrets.set_secret(name=f"KEY_{number}", value=f"value {number}", actor=user)

    def test_all_secrets_move_to_the_first_key_and_open_without_the_old_one(
        self, old, settings, tenant, other_tenant, capsys
    ):
        settings.APP_KEKS = ring("new", "old")
        call_command("rotate_secrets", batch=3)
        assert capsys.readouterr().out == "Before: old: 14\nAfter:  new: 14\n"
        settings.APP_KEKS = ring("new")
        for each in (tenant, other_tenant):
            with tenant_scope(each):
                values = [secrets.read(one, used_by="t", run="r") for one in Secret.objects.order_by("name")]
                assert values == [f"value {number}" for number in range(7)]

    def test_half_a_rotation_goes_on_where_it_was(self, old, settings, tenant, capsys):
        settings.APP_KEKS = ring("new", "old")
        assert secrets.rotate_batch(tenant.pk, limit=2) == (2, [])
        with tenant_scope(tenant):  # in the middle all are readable
            assert len([secrets.read(one, used_by="t", run="r") for one in Secret.objects.all()]) == 7
        call_command("rotate_secrets")
        assert capsys.readouterr().out == "Before: new: 2, old: 12\nAfter:  new: 14\n"

    def test_one_that_does_not_open_is_named_and_stops_nobody_else(self, old, settings, tenant, capsys):
        settings.APP_KEKS = ring("new", "old")
        with tenant_scope(tenant):
            Secret.objects.filter(name="KEY_3").update(wrapped_key=b"x" * 60)
        with pytest.raises(CommandError, match="KEY_3 of tenant"):
            call_command("rotate_secrets", batch=2)
        assert "new: 13, old: 1" in capsys.readouterr().out

    def test_a_process_does_not_start_without_a_key_that_is_in_use(self, old, settings):
        settings.APP_KEKS = ring("old")
        refuse_missing_keys()
        settings.APP_KEKS = ring("new")
        with pytest.raises(ImproperlyConfigured, match="APP_KEKS: secrets are stored under old"):
            refuse_missing_keys()


def test_the_web_process_does_not_start_without_a_key_that_is_in_use(inside, secret):
    env = {name: value for name, value in os.environ.items() if name != "APP_KEKS"}
    done = subprocess.run(
        [sys.executable, "-c", "import quality.wsgi"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert f"APP_KEKS: secrets are stored under {settings.APP_KEKS.writing}" in done.stderr


def test_the_key_of_sessions_has_no_part_in_secrets(inside, secret, settings):
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another one of fifty characters " * 2, [settings.SECRET_KEY]
    with inside():
        assert secrets.read(secret, used_by="t", run="r") == "canary-4711"


def test_another_tenants_secrets_do_not_exist(secret, other_tenant):
    with tenant_scope(other_tenant):
        assert not Secret.objects.exists()
        assert secrets.read_for_tool(PLACE, ["SHOP_KEY"], run="r") == {}
