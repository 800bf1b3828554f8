"""How a command ends when it did not do what it was asked."""

from collections.abc import Sequence

from activity_core.errors import ActivityCoreError

REFUSED = 1
MISUSED = 2
UNREACHABLE = 3


class CommandFailedError(ActivityCoreError):
    """What to print on standard error, line by line, and the exit code."""

    code = "command_failed"

    def __init__(self, lines: Sequence[str] | str, *, exit_code: int = REFUSED) -> None:
        self.lines = [lines] if isinstance(lines, str) else list(lines)
        self.exit_code = exit_code
        super().__init__("\n".join(self.lines))
