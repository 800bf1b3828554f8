"""The key that seals stored secrets of a development stack: made once, beside its data."""

import base64
import os
from pathlib import Path

from activity_core.settings import KEY_BYTES

FILE_NAME = "encryption-key"


def encryption_key(home: Path) -> str:
    """As ACTIVITY_CORE_ENCRYPTION_KEYS has it. Without this file what was sealed can't be opened."""
    file = home / FILE_NAME
    if not file.exists():
        draft = file.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(base64.b64encode(os.urandom(KEY_BYTES)).decode() + "\n")
        draft.replace(file)
    return file.read_text().strip()
