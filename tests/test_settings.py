"""Settings: read from `ACTIVITY_CORE_*`, told by the variable's name when wrong, never showing a value that may be secret."""

import base64

import pytest

from activity_core.errors import ConfigurationError
from activity_core.settings import Settings, load_settings

MINIMAL = {
    "ACTIVITY_CORE_DATABASE_URL": "postgresql://user:hunter2@db:5432/name",
    "ACTIVITY_CORE_TEMPORAL_ADDRESS": "temporal:7233",
}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The minimal settings and no other, in the environment."""
    for field in Settings.model_fields:
        monkeypatch.delenv(f"ACTIVITY_CORE_{field.upper()}", raising=False)
    for name, value in MINIMAL.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_minimum_is_two_variables(given: pytest.MonkeyPatch) -> None:
    settings = load_settings()
    assert settings.api_host == "127.0.0.1"
    assert settings.api_port == 8080
    assert settings.task_queue == "activity-core"
    assert settings.max_request_bytes == 1_048_576
    assert settings.max_event_data_bytes == 262_144
    assert not settings.uses_tls


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "postgres"])
def test_each_spelling_of_the_database_url_gives_both_forms(given: pytest.MonkeyPatch, scheme: str) -> None:
    given.setenv("ACTIVITY_CORE_DATABASE_URL", f"{scheme}://user:hunter2@db/name?ssl=require")
    settings = load_settings()
    assert settings.sqlalchemy_url == "postgresql+asyncpg://user:hunter2@db/name?ssl=require"
    assert settings.asyncpg_url == "postgresql://user:hunter2@db/name?ssl=require"


def test_encryption_keys_are_read_in_their_order_and_not_shown(given: pytest.MonkeyPatch) -> None:
    first, second = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
    given.setenv("ACTIVITY_CORE_ENCRYPTION_KEYS", f"{first}, {second}")
    settings = load_settings()
    assert settings.encryption_key_bytes == (b"\x01" * 32, b"\x02" * 32)
    assert first not in repr(settings)
    given.setenv("ACTIVITY_CORE_ENCRYPTION_KEYS", "")
    assert load_settings().encryption_key_bytes == ()


def test_settings_are_frozen_and_show_no_secret(given: pytest.MonkeyPatch) -> None:
    given.setenv("ACTIVITY_CORE_TEMPORAL_API_KEY", "s3cret")
    settings = load_settings()
    assert "hunter2" not in repr(settings)
    assert "s3cret" not in repr(settings)
    with pytest.raises(Exception, match="frozen"):
        settings.api_port = 1  # type: ignore[misc]  # the type says so too


def test_all_missing_variables_are_named_at_once(given: pytest.MonkeyPatch) -> None:
    for name in MINIMAL:
        given.delenv(name)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    for name in MINIMAL:
        assert f"{name} is not set" in caught.value.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://root:hunter2@db/name"),
        ("API_PORT", "hunter2"),
        ("LOG_FORMAT", "hunter2"),
        ("ENCRYPTION_KEYS", "hunter2"),
        ("ENCRYPTION_KEYS", "hunter2hunter2hunter2hunter2hunter2hunter2"),
        ("ENCRYPTION_KEYS", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,hunter2"),
        ("ENCRYPTION_KEYS", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,"),
    ],
)
def test_a_wrong_variable_is_named_without_its_value(given: pytest.MonkeyPatch, name: str, value: str) -> None:
    given.setenv(f"ACTIVITY_CORE_{name}", value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert f"ACTIVITY_CORE_{name} is wrong" in caught.value.detail
    assert "hunter2" not in caught.value.detail


def test_an_empty_variable_counts_as_not_set(given: pytest.MonkeyPatch) -> None:
    given.setenv("ACTIVITY_CORE_API_PORT", "")
    assert load_settings().api_port == 8080


def test_half_a_client_certificate_is_refused(given: pytest.MonkeyPatch) -> None:
    given.setenv("ACTIVITY_CORE_TEMPORAL_TLS_CLIENT_CERT_PATH", "/cert.pem")
    with pytest.raises(ConfigurationError, match="TEMPORAL_TLS_CLIENT_KEY_PATH"):
        load_settings()


def test_an_api_key_never_travels_in_the_clear(given: pytest.MonkeyPatch) -> None:
    given.setenv("ACTIVITY_CORE_TEMPORAL_API_KEY", "s3cret")
    assert load_settings().uses_tls


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "::1", "localhost"])
def test_an_api_on_loopback_needs_no_key(given: pytest.MonkeyPatch, host: str) -> None:
    given.setenv("ACTIVITY_CORE_API_HOST", host)
    load_settings().refuse_open_api()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_an_api_open_to_others_has_to_be_asked_for(given: pytest.MonkeyPatch, host: str) -> None:
    settings = load_settings(api_host=host)
    with pytest.raises(ConfigurationError, match="ACTIVITY_CORE_INSECURE_NO_AUTH=true"):
        settings.refuse_open_api()

    given.setenv("ACTIVITY_CORE_INSECURE_NO_AUTH", "true")
    load_settings(api_host=host).refuse_open_api()
