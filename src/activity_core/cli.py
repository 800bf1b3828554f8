"""The command line, `activity-core`: processes to run, and commands that talk to a running service.

What only some commands need is imported inside them: the Temporal SDK, the database and FastAPI take a second to load,
which would be the start time of every command and of `--help`. No cycle is dodged by it.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from activity_core.commands import backfills, definitions, events, freezes, operate, runs, simulate, sources, tasks
from activity_core.commands.failure import MISUSED, CommandFailedError
from activity_core.commands.render import note
from activity_core.errors import ActivityCoreError, ConfigurationError

if TYPE_CHECKING:
    from activity_core.settings import Settings

INTERRUPTED = 130
EXIT_CODES = """\
\b
Exit codes:
  0  done
  1  refused, or what was waited for did not complete
  2  a wrong command line, or wrong settings
  3  the service can't be reached or is not available: asking again is safe where the message says how
"""


class _Commands(TyperGroup):
    """The one place where a command's failure is told."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandFailedError as failure:
            for line in failure.lines:
                note(line)
            raise typer.Exit(failure.exit_code) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    # Plain text: it needs no import of rich, and square brackets in help stay what they are.
    rich_markup_mode=None,
    # Its tracebacks can show local variables, and these hold settings.
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def main() -> None:
    """The console script."""
    app(prog_name="activity-core")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("activity-core")
        except PackageNotFoundError:
            number = "(not installed: run from its source)"
        typer.echo(f"activity-core {number}")
        raise typer.Exit


@app.callback()
def activity_core(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Recurring and event-driven work, exactly once in effect, with a record of why it did or did not happen.

    \b
    Example:
      activity-core init
      activity-core apply -f heartbeat.yaml
      activity-core runs
    """


@app.command()
def api() -> None:
    """Serve the HTTP API.

    \b
    Example:
      ACTIVITY_CORE_DATABASE_URL=postgresql://… ACTIVITY_CORE_TEMPORAL_ADDRESS=127.0.0.1:7233 activity-core api
    """
    settings = _start("api")
    from activity_core.api.main import serve

    _run_process("api", serve(settings))


@app.command()
def router() -> None:
    """Run the event router.

    It turns accepted events into rows of the ledger.

    \b
    Example:
      ACTIVITY_CORE_DATABASE_URL=postgresql://… ACTIVITY_CORE_TEMPORAL_ADDRESS=127.0.0.1:7233 activity-core router
    """
    settings = _start("router")
    from activity_core.router.main import serve

    _run_process("router", serve(settings))


@app.command()
def worker() -> None:
    """Run a worker.

    It starts runs, executes them and delivers their tasks.

    \b
    Example:
      ACTIVITY_CORE_DATABASE_URL=postgresql://… ACTIVITY_CORE_TEMPORAL_ADDRESS=127.0.0.1:7233 activity-core worker
    """
    settings = _start("worker")
    from activity_core.worker.main import serve

    _run_process("worker", serve(settings))


@app.command()
def migrate() -> None:
    """Bring the database to this version.

    \b
    Example:
      ACTIVITY_CORE_DATABASE_URL=postgresql://… ACTIVITY_CORE_TEMPORAL_ADDRESS=127.0.0.1:7233 activity-core migrate
    """
    settings = _start("migrate")
    from activity_core.processes import watch_parent
    from activity_core.store.migrate import migrate as to_head

    watch_parent()
    with _telling("migrate"):
        to_head(settings)


@app.command()
def dev(
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the state is kept.")] = Path(".activity-core"),
    api_port: Annotated[
        int, typer.Option(envvar="ACTIVITY_CORE_API_PORT", min=0, max=65_535, metavar="PORT", help="0: a free one.")
    ] = 8080,
    temporal_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, metavar="PORT", help="7233 if left out and free; 0: a free one.")
    ] = None,
    temporal_ui_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, metavar="PORT", help="8233 if left out and free; 0: a free one.")
    ] = None,
) -> None:
    """Run everything on this machine.

    Postgres, Temporal, API, router and worker, in one process tree. The state survives, Ctrl-C ends it. With
    ACTIVITY_CORE_DATABASE_URL or ACTIVITY_CORE_TEMPORAL_ADDRESS set, these servers are used instead.

    \b
    Example:
      activity-core dev
      activity-core dev --data-dir /var/tmp/activity-core --api-port 8081 --temporal-ui-port 0
    """
    try:
        from activity_core.dev import DevOptions, run_dev
    except ModuleNotFoundError as error:
        raise CommandFailedError(
            f"activity-core dev needs {error.name}: pip install 'activity-core[dev]'", exit_code=MISUSED
        ) from None
    options = DevOptions(
        data_dir=data_dir,
        api_port=api_port,
        temporal_port=temporal_port,
        temporal_ui_port=temporal_ui_port,
        database_url=os.environ.get("ACTIVITY_CORE_DATABASE_URL") or None,
        temporal_address=os.environ.get("ACTIVITY_CORE_TEMPORAL_ADDRESS") or None,
        temporal_namespace=os.environ.get("ACTIVITY_CORE_TEMPORAL_NAMESPACE") or "default",
    )
    raise typer.Exit(run_dev(options))


app.command()(definitions.init)
app.command()(definitions.apply)
app.command()(definitions.get)
app.command()(runs.trigger)
app.command()(operate.rerun)
app.command()(runs.runs)
app.add_typer(tasks.app, name="tasks")
app.command()(runs.occurrences)
app.command()(runs.why)
app.command("next")(operate.next_times)
app.command()(simulate.simulate)
app.command()(operate.pause)
app.command()(operate.resume)
app.add_typer(freezes.app, name="freeze")
app.command()(backfills.backfill)
app.command()(backfills.backfills)
app.command("cancel-backfill")(backfills.cancel_backfill)
app.add_typer(events.app, name="events")
app.add_typer(sources.app, name="sources")


def _start(name: str) -> "Settings":
    """What every process begins with: its settings, read once, and its log."""
    from activity_core.logging import configure_logging
    from activity_core.settings import load_settings

    with _telling(name):
        settings = load_settings()
    configure_logging(settings, name)
    return settings


def _run_process(name: str, serving: Coroutine[Any, Any, None]) -> None:
    """Run one of our processes until SIGTERM or SIGINT."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ModuleNotFoundError):  # it has no build for Windows
        import uvloop

        new_loop = uvloop.new_event_loop
    with _telling(name), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serving)


@contextmanager
def _telling(name: str) -> Iterator[None]:
    """Expected errors end the process with one line; anything else is a bug, and its traceback goes to the log."""
    try:
        yield
    except ConfigurationError as error:
        raise CommandFailedError(f"activity-core {name}: {error.detail}", exit_code=MISUSED) from None
    except ActivityCoreError as error:
        raise CommandFailedError(f"activity-core {name}: {error.detail} ({error.code})") from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        import structlog

        # Not left to the interpreter, which would print past the log's format and its redaction.
        structlog.get_logger().exception("process.crashed")
        raise typer.Exit(1) from error
