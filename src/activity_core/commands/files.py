"""Definition files: which there are, what is in them, and where."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from activity_core.commands.failure import MISUSED, CommandFailedError
from activity_core.commands.json_text import read_json
from activity_core.commands.located import Located, TextError

SUFFIXES = (".yaml", ".yml", ".json")
STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class FileDocument:
    """One document and the file it stands in."""

    path: str
    located: Located

    @property
    def value(self) -> Any:
        return self.located.value


def fault_line(path: str, line: int, pointer: str, message: str) -> str:
    return f"{path}:{line}: {pointer or '/'}: {message}"


def read_documents(names: Sequence[str]) -> list[FileDocument]:
    """Every document of these files, directories (not those inside them) and, for `-`, standard input, in order.

    Raises CommandFailedError naming every fault of every file.
    """
    documents: list[FileDocument] = []
    faults: list[str] = []
    for path in _unique(path for name in names for path in _paths(name)):
        try:
            documents.extend(FileDocument(path, located) for located in _read(path))
        except TextError as error:
            faults.extend(fault_line(path, fault.line, fault.pointer, fault.message) for fault in error.faults)
    if faults:
        raise CommandFailedError([*faults, "Nothing was applied."])
    if not documents:
        raise CommandFailedError(f"error: no documents in {', '.join(names)}", exit_code=MISUSED)
    return documents


def is_file_name(what: str) -> bool:
    """Whether what may be a file or a slug is a file."""
    return what == STANDARD_INPUT or os.sep in what or Path(what).suffix in SUFFIXES


def read_activity_document(path: str) -> FileDocument:
    """The one activity that a file defines."""
    documents = [
        document
        for document in read_documents([path])
        if isinstance(document.value, dict) and document.value.get("kind") == "Activity"
    ]
    if not documents:
        raise CommandFailedError(f"error: {path} defines no activity", exit_code=MISUSED)
    if len(documents) > 1:
        slugs = ", ".join(str(document.value.get("slug")) for document in documents)
        raise CommandFailedError(
            f"error: {path} defines {len(documents)} activities ({slugs}); apply it and name one, or give a file with one",
            exit_code=MISUSED,
        )
    return documents[0]


def read_document(path: str) -> FileDocument:
    """The one value in a file."""
    documents = read_documents([path])
    if len(documents) > 1:
        raise CommandFailedError(f"error: {path} has {len(documents)} documents; give one", exit_code=MISUSED)
    return documents[0]


def _unique(paths: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(paths)


def _paths(name: str) -> list[str]:
    path = Path(name)
    if name == STANDARD_INPUT or path.is_file():
        return [name]
    if not path.is_dir():
        raise CommandFailedError(f"error: there is no file or directory {name}", exit_code=MISUSED)
    found = sorted(str(file) for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise CommandFailedError(f"error: {name} has no {', '.join(SUFFIXES)} file", exit_code=MISUSED)
    return found


def _read(path: str) -> list[Located]:
    try:
        raw = sys.stdin.buffer.read() if path == STANDARD_INPUT else Path(path).read_bytes()
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandFailedError(f"error: {path} is not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise CommandFailedError(f"error: {path}: {error.strerror}", exit_code=MISUSED) from None
    if path.endswith(".json"):
        return read_json(text)
    # here and not above: only `apply` needs the YAML library, and every command would load it
    from activity_core.commands.yaml_text import read_yaml

    return read_yaml(text)
