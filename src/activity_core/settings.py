"""What a process is told from outside: environment variables `ACTIVITY_CORE_*`, read once by the entry point.

Everything below the entry point gets the values that it needs as arguments; nothing else reads the environment, except
for `ACTIVITY_CORE_SECRET_*`, which belongs to the steps that use a secret.
"""

import base64
import ipaddress
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from activity_core.errors import ConfigurationError

PREFIX = "ACTIVITY_CORE_"

_POSTGRES_SCHEMES = ("postgresql+asyncpg://", "postgresql://", "postgres://")

KEY_BYTES = 32

_WHAT_TO_SET = {
    "database_url": "the Postgres to use, e.g. postgresql://user:password@127.0.0.1:5432/activity_core",
    "temporal_address": "the Temporal frontend to use, e.g. 127.0.0.1:7233",
}


class Settings(BaseSettings):
    """Settings of one process; frozen. A missing or malformed one is a `ConfigurationError` from `load_settings`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    database_url: SecretStr
    database_pool_size: int = Field(default=10, ge=1, le=1_000)

    temporal_address: str = Field(min_length=1)
    temporal_namespace: str = Field(default="default", min_length=1)
    temporal_api_key: SecretStr | None = None
    temporal_tls: bool = False
    temporal_tls_server_ca_cert_path: Path | None = None
    temporal_tls_client_cert_path: Path | None = None
    temporal_tls_client_key_path: Path | None = None
    task_queue: str = Field(default="activity-core", min_length=1)

    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8080, ge=0, le=65_535)
    insecure_no_auth: bool = False
    max_request_bytes: int = Field(default=1024 * 1024, ge=1024)
    max_event_data_bytes: int = Field(default=256 * 1024, ge=1024)

    # Base64 of 32 bytes each, comma-separated: the first seals secrets that are stored, all of them open.
    encryption_keys: SecretStr | None = None
    # Files named after the secrets that documents name, beside ACTIVITY_CORE_SECRET_<NAME>.
    secrets_dir: Path | None = None
    receipt_days: int = Field(default=30, ge=1, le=3_650)

    max_runs_in_flight: int = Field(default=100, ge=1, le=10_000)
    log_format: Literal["json", "console"] = "json"

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().startswith(_POSTGRES_SCHEMES):
            raise ValueError("it must begin with postgresql://")
        return value

    @field_validator("encryption_keys")
    @classmethod
    def _are_keys(cls, value: SecretStr | None) -> SecretStr | None:
        for text in [] if value is None else value.get_secret_value().split(","):
            if len(decoded_key(text)) != KEY_BYTES:
                raise ValueError(
                    "each key is the base64 of 32 random bytes, for example from `openssl rand -base64 32`"
                )
        return value

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "Settings":
        if (self.temporal_tls_client_cert_path is None) != (self.temporal_tls_client_key_path is None):
            raise ValueError(
                f"{PREFIX}TEMPORAL_TLS_CLIENT_CERT_PATH and {PREFIX}TEMPORAL_TLS_CLIENT_KEY_PATH go together: "
                "set both or none"
            )
        return self

    @property
    def sqlalchemy_url(self) -> str:
        """The database URL as SQLAlchemy's asyncpg dialect wants it. Holds the password: never log it."""
        return "postgresql+asyncpg://" + self._url_without_scheme

    @property
    def asyncpg_url(self) -> str:
        """The database URL as `asyncpg.connect` wants it. Holds the password: never log it."""
        return "postgresql://" + self._url_without_scheme

    @property
    def uses_tls(self) -> bool:
        """An API key or a client certificate makes no sense in the clear, so either implies TLS."""
        return (
            self.temporal_tls
            or self.temporal_api_key is not None
            or self.temporal_tls_client_cert_path is not None
            or self.temporal_tls_server_ca_cert_path is not None
        )

    @property
    def encryption_key_bytes(self) -> tuple[bytes, ...]:
        """The keys for stored secrets, the one that seals first."""
        written = "" if self.encryption_keys is None else self.encryption_keys.get_secret_value()
        return tuple(decoded_key(text) for text in written.split(",") if text)

    @property
    def api_is_loopback(self) -> bool:
        return is_loopback(self.api_host)

    def refuse_open_api(self) -> None:
        """Raises `ConfigurationError` if the API, which has no keys yet, would be reachable from other machines."""
        if self.insecure_no_auth or self.api_is_loopback:
            return
        raise ConfigurationError(
            f"the API asks for no key yet, so it listens on loopback only, and {PREFIX}API_HOST is {self.api_host}. "
            f"Set {PREFIX}INSECURE_NO_AUTH=true if something in front of it decides who may call it."
        )

    @property
    def _url_without_scheme(self) -> str:
        return self.database_url.get_secret_value().partition("://")[2]


def decoded_key(text: str) -> bytes:
    """The bytes of an encryption key as it is written; none for what is no base64."""
    try:
        return base64.b64decode(text.strip(), validate=True)
    except ValueError:
        return b""


def load_settings(**overrides: Any) -> Settings:
    """Settings from the process environment; `overrides` (such as a command-line flag's value) win.

    Raises `ConfigurationError` naming every variable that is missing or wrong, never its value (it may be a secret).
    """
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise ConfigurationError(_explain(error)) from None


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def environment_without_settings() -> dict[str, str]:
    """The process environment less every `ACTIVITY_CORE_*` variable but the secrets: the base for a child process."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PREFIX) or name.startswith(f"{PREFIX}SECRET_")
    }


def _explain(error: ValidationError) -> str:
    lines = []
    for fault in error.errors(include_input=False, include_url=False):
        field = str(fault["loc"][0]) if fault["loc"] else ""
        variable = f"{PREFIX}{field.upper()}"
        reason = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "missing":
            lines.append(f"{variable} is not set: {_WHAT_TO_SET.get(field, 'it is required')}.")
        elif field:
            lines.append(f"{variable} is wrong: {reason}.")
        else:
            lines.append(f"{reason}.")
    return " ".join(lines)
