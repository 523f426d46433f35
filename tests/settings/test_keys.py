"""Keys that seal secrets: what may be one, and what a sealed value gives away (S1, S2, S9)."""

import base64
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants import envelope
from tenants.keys import Keyring, parse_keks


def key(fill: bytes | None = None) -> str:
    return base64.b64encode(fill or os.urandom(32)).decode()


def test_the_first_key_writes_and_all_read():
    ring = parse_keks(f"k2:{key()}, k1:{key()}")
    assert ring.writing == "k2"
    assert list(ring.keys) == ["k2", "k1"]


@pytest.mark.parametrize("text", ["", " ", ","])
def test_no_keys_are_an_empty_ring(text):
    assert parse_keks(text).writing is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (key(), "form id:base64"),
        (f"k 1:{key()}", "form id:base64"),
        (f"k1:{key()},k1:{key()}", "stands twice"),
        ("k1:not base64!", "not base64"),
        (f"k1:{key(os.urandom(16))}", "16 bytes and needs 32"),
        (f"k1:{key(bytes(range(32)))}", "an example"),
        (f"k1:{key(b'0123456789abcdef0123456789abcdef')}", "an example"),
        (f"k1:{key(b'a' * 32)}", "an example"),
    ],
    ids=range(8),  # every worker has to name the tests alike, and the keys are drawn anew
)
def test_a_bad_key_is_refused_by_its_fault_and_never_shown(text, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        parse_keks(text)
    encoded = text.partition(":")[2]
    assert not encoded or encoded not in str(caught.value)


@pytest.mark.parametrize("value", ["k1:c2hvcnQ=", f"k1:{key(b'x' * 32)}", "nonsense"])
def test_a_bad_key_stops_the_start_and_names_the_variable(value):
    done = subprocess.run(
        [sys.executable, "-c", "from django.conf import settings; settings.DEBUG"],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "quality.settings", "APP_KEKS": value},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "ImproperlyConfigured: APP_KEKS:" in done.stderr
    assert value not in done.stderr


def test_keys_may_come_from_a_file(tmp_path):
    file = tmp_path / "keks"
    file.write_text(f"disk:{key()}")
    env = {name: value for name, value in os.environ.items() if name != "APP_KEKS"}
    done = subprocess.run(
        [sys.executable, "-c", "from django.conf import settings; print(settings.APP_KEKS.writing)"],
        env=env | {"DJANGO_SETTINGS_MODULE": "quality.settings", "APP_KEKS_FILE": str(file)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "disk", done.stderr


RING = Keyring({"k1": os.urandom(32)})
HERE = envelope.binding(tenant_id=1, secret_id=7, name="KEY")


@given(st.text(max_size=200))
def test_what_is_sealed_opens_as_it_was(value):
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    assert envelope.open_envelope(envelope.seal(value, RING, HERE), RING, HERE) == value


@pytest.mark.parametrize(
    "elsewhere",
    [
        envelope.binding(tenant_id=2, secret_id=7, name="KEY"),
        envelope.binding(tenant_id=1, secret_id=8, name="KEY"),
        envelope.binding(tenant_id=1, secret_id=7, name="KEY2"),
    ],
)
def test_an_envelope_opens_in_no_other_place(elsewhere):
    with pytest.raises(envelope.SecretInvalid):
        envelope.open_envelope(envelope.seal("hush", RING, HERE), RING, elsewhere)


def test_one_changed_bit_closes_it():
    sealed = envelope.seal("hush", RING, HERE)
    for part in ("wrapped_key", "ciphertext"):
        blob = bytearray(getattr(sealed, part))
        blob[-1] ^= 1
        broken = envelope.Envelope(**{"kid": "k1", "wrapped_key": sealed.wrapped_key, "ciphertext": sealed.ciphertext}
                                   | {part: bytes(blob)})  # fmt: skip
        with pytest.raises(envelope.SecretInvalid):
            envelope.open_envelope(broken, RING, HERE)


def test_nonces_and_data_keys_never_come_twice():
    seen = set()
    for _ in range(20_000):
        sealed = envelope.seal("v", RING, HERE)
        seen |= {sealed.wrapped_key[:12], sealed.ciphertext[:12]}
    assert len(seen) == 40_000


def test_a_fingerprint_tells_values_apart_and_tenants_too():
    def of(value: str, tenant_id: int = 1) -> str:
        return envelope.fingerprint(value, RING, tenant_id=tenant_id)

    assert of("a") == of("a")
    assert len({of("a"), of("b"), of("a", tenant_id=2)}) == 3
