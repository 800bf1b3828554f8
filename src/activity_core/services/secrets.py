"""Secrets of others that we must know in clear: named ones, which stay outside, and given ones, sealed in the database.

A sealed secret is `version | key id | nonce | AES-256-GCM`, bound to the row that owns it, so that one copied to another
row does not open. The keys are the process's: who has only the database has none of the secrets.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from activity_core.errors import UnavailableError
from activity_core.settings import PREFIX, Settings

VERSION = b"\x01"
KEY_ID_BYTES = 4
NONCE_BYTES = 12
MAX_SECRET_BYTES = 4_096
HOW_TO_NAME = "or name a secret that is set outside: '${ secret.NAME }'"


class SecretUnavailableError(UnavailableError):
    """A secret can't be had: its name is not set, or no key here opens it. For whoever runs us to mend."""


class Secrets:
    """`keys` of 32 bytes: the first seals, each opens what it sealed."""

    def __init__(
        self, keys: Sequence[bytes] = (), *, directory: Path | None = None, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._keys = {_key_id(key): AESGCM(key) for key in keys}
        self._sealing = (_key_id(keys[0]), keys[0]) if keys else None
        self._directory = directory
        self._environment = environment

    @classmethod
    def of(cls, settings: Settings) -> "Secrets":
        return cls(settings.encryption_key_bytes, directory=settings.secrets_dir)

    @property
    def can_seal(self) -> bool:
        return self._sealing is not None

    def named(self, name: str) -> str | None:
        """The secret of this name from the environment, or from its file; None where there is none."""
        given = self._environment.get(f"{PREFIX}SECRET_{name}")
        if given or self._directory is None:
            return given or None
        try:
            with (self._directory / name).open(encoding="utf-8") as file:
                # one more than may be, so that a longer one is told and not cut
                return file.read(MAX_SECRET_BYTES + 1).strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def seal(self, secret: str, owner: str) -> bytes:
        """Raises SecretUnavailableError where there is no key."""
        if self._sealing is None:
            raise SecretUnavailableError(f"set {PREFIX}ENCRYPTION_KEYS, {HOW_TO_NAME}")
        key_id, nonce = self._sealing[0], os.urandom(NONCE_BYTES)
        return VERSION + key_id + nonce + self._keys[key_id].encrypt(nonce, secret.encode(), owner.encode())

    def open(self, sealed: bytes, owner: str) -> str:
        """Raises SecretUnavailableError when no key here opens it."""
        start = len(VERSION) + KEY_ID_BYTES
        key = self._keys.get(sealed[len(VERSION) : start])
        try:
            if key is None or sealed[: len(VERSION)] != VERSION:
                raise InvalidTag
            nonce, rest = sealed[start : start + NONCE_BYTES], sealed[start + NONCE_BYTES :]
            return key.decrypt(nonce, rest, owner.encode()).decode()
        except InvalidTag:
            raise SecretUnavailableError(
                f"no key in {PREFIX}ENCRYPTION_KEYS opens this secret; add the one that sealed it, or set the secret anew"
            ) from None

    def is_current(self, sealed: bytes) -> bool:
        """Whether the first key sealed it, so that the others may go."""
        start = len(VERSION)
        return self._sealing is None or sealed[start : start + KEY_ID_BYTES] == self._sealing[0]

    def fingerprint(self, secret: str) -> str:
        """Eight hex digits that tell secrets apart, and say nothing of them to who has no key."""
        key = b"named" if self._sealing is None else self._sealing[1]
        return hmac.new(key, secret.encode(), "sha256").hexdigest()[:8]


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"activity-core key id" + key).digest()[:KEY_ID_BYTES]
