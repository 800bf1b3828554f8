"""The command simulate: what outages and pauses would do to the due times of an activity, before they do."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Any

import typer

from activity_core.commands.api import Answer, Api, ProblemError
from activity_core.commands.failure import MISUSED, CommandFailedError
from activity_core.commands.files import FileDocument, fault_line, is_file_name, read_activity_document
from activity_core.commands.options import DEFAULT_API_URL, ApiUrl, Output, OutputAs
from activity_core.commands.render import instant, note, say, table

MAX_ROWS = 50
# A series of equal outcomes is told in one line if it is longer; late starts are what a simulation is looked at for.
MAX_SERIES, MAX_LATE_SERIES = 3, 20
_SPAN = re.compile(r"([^/]+)/([^/]+?)(?::([a-z_]+))?")


class Policy(StrEnum):
    SKIP = "skip"
    CATCHUP = "catchup"
    COMPRESS = "compress"


@dataclass(frozen=True, slots=True)
class Source:
    """A trigger, as it was written, and the document that it stands in if that is one of a file."""

    trigger: Any
    document: FileDocument | None = None


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of time as they were given to `option`, and what a suffix of them is."""

    option: str
    suffix: str
    texts: Sequence[str]

    def body(self) -> list[dict[str, str]]:
        """Raises CommandFailedError for what is no span."""
        return [self._read(text) for text in self.texts]

    def _read(self, text: str) -> dict[str, str]:
        match = _SPAN.fullmatch(text)
        if match is None:
            example = "2026-03-01T09:00:00Z/2026-03-01T11:30:00Z"
            raise CommandFailedError(f"error: {self.option} must read like {example}, and is {text}", exit_code=MISUSED)
        start, end, suffix = match.groups()
        return {"from": start, "to": end, **({self.suffix: suffix} if suffix else {})}


def simulate(
    what: Annotated[
        str, typer.Argument(metavar="FILE|REF", help="A definition file (- for standard input), or a slug or id.")
    ],
    start: Annotated[str, typer.Option("--from", metavar="INSTANT", help="With its offset, inclusive.")],
    end: Annotated[str, typer.Option("--to", metavar="INSTANT", help="With its offset, exclusive.")],
    outage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FROM/TO[:CAUSE]",
            help="Nothing starts. worker_down (the default), temporal_down, overload. Repeatable.",
        ),
    ] = None,
    pause: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FROM/TO[:ON_MISFIRE]",
            help="Held, then decided as by resume: policy (the default), skip, catchup, compress. Repeatable.",
        ),
    ] = None,
    run_seconds: Annotated[int, typer.Option(min=0, metavar="SECONDS", help="How long each run takes.")] = 0,
    policy: Annotated[Policy | None, typer.Option(help="Instead of the misfire_policy that is written.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="All three policies, side by side.")] = False,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Show what would become of due times.

    Of those from --from on and before --to: which would run, and when; which would be skipped, dropped or merged into
    another. It is as it would stand at --to, by the planner that the service uses. Nothing is stored or changed. With
    --compare, json has one answer for each policy.

    \b
    Example:
      activity-core simulate digest --from 2026-03-01T00Z --to 2026-03-02T00Z --outage 2026-03-01T06Z/2026-03-01T12Z
      activity-core simulate digest.yaml --from 2026-03-28T00Z --to 2026-04-01T00Z --run-seconds 90 --compare
    """
    if compare and policy is not None:
        raise CommandFailedError("error: give --policy or --compare, not both", exit_code=MISUSED)
    spans = {"outages": Spans("--outage", "cause", outage or ()), "pauses": Spans("--pause", "on_misfire", pause or ())}
    body = {"from": start, "to": end, "run_seconds": run_seconds}
    body |= {name: given.body() for name, given in spans.items()}
    api = Api(api_url)
    source = _source(what, api)
    answers = {wanted: _ask(api, body, source, wanted, spans) for wanted in (tuple(Policy) if compare else (policy,))}
    if output is Output.JSON:
        bodies = {wanted: answer.body.decode() for wanted, answer in answers.items()}
        each = ", ".join(f'"{wanted}": {text}' for wanted, text in bodies.items())
        typer.echo(f"{{{each}}}" if compare else bodies[policy])
    elif compare:
        _show_beside({str(wanted): answer.json for wanted, answer in answers.items()})
    else:
        _show(answers[policy].json)


def _source(what: str, api: Api) -> Source:
    if not is_file_name(what):
        return Source(api.get("activities", what).json["effective"]["trigger"])
    document = read_activity_document(what)
    return Source(document.value.get("trigger"), document)


def _ask(
    api: Api, body: Mapping[str, Any], source: Source, policy: Policy | None, spans: Mapping[str, Spans]
) -> Answer:
    trigger = source.trigger
    if policy is not None and isinstance(trigger, dict):
        trigger = {**trigger, "misfire_policy": policy}
    try:
        return api.post("simulate", body={"trigger": trigger, **body})
    except ProblemError as problem:
        if problem.status == 422 and problem.told_faults:
            problem.lines = [
                _fault(str(fault.get("pointer")), str(fault.get("message")), source.document, spans)
                for fault in problem.told_faults
            ]
        raise


def _fault(pointer: str, message: str, document: FileDocument | None, spans: Mapping[str, Spans]) -> str:
    """One fault, where its cause was written: in a file, in an option, or in the activity."""
    _, name, *rest = [*pointer.split("/"), ""]
    if name == "trigger" and document is not None:
        return fault_line(document.path, document.located.line_of(pointer), pointer, message)
    if name in spans and rest[0].isdigit() and int(rest[0]) < len(spans[name].texts):
        return f"error: {spans[name].option} {spans[name].texts[int(rest[0])]}: {message}"
    options = {"from": "--from", "to": "--to", "run_seconds": "--run-seconds"}
    return f"error: {options.get(name, pointer or '/')}: {message}"


def _show(answer: Mapping[str, Any]) -> None:
    occurrences, runs = answer["occurrences"], {run["scheduled_for"]: run for run in answer["runs"]}
    _headline(answer, f", {'1 run' if len(runs) == 1 else f'{len(runs):,} runs'}")
    if not occurrences:
        return
    counts = Counter((row["outcome"], row["reason_code"]) for row in occurrences)
    shown = [(outcome, code, f"{count:,}") for (outcome, code), count in counts.items()]
    say()
    table(("outcome", "reason code", "times"), shown, empty="")
    say()
    lines: list[tuple[Any, ...]] = []
    for series in _series(occurrences, lambda row: (row["outcome"], row["reason_code"], row["merged_into"])):
        lines += _lines(series, runs)
    _timeline(("for", "outcome", "started", "window", "times covered"), lines)
    waiting = sum(row["outcome"] == "waiting" for row in occurrences)
    if waiting:
        note(f"{_times(waiting)} would still wait at the end of the range: a later --to shows what becomes of them.")


def _headline(answer: Mapping[str, Any], runs: str = "") -> None:
    say(f"Due {answer['description']}: {_times(len(answer['occurrences']))} in the range{runs}.")
    for notice in answer["notices"]:
        note(f"Note: {notice['message']}")


def _series(rows: Sequence[Any], key: Any) -> list[list[Any]]:
    return [list(group) for _, group in groupby(rows, key)]


def _lines(series: Sequence[Mapping[str, Any]], runs: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[Any, ...]]:
    """One line for each time of a short series, one for the whole of a long one."""
    outcome = _outcome(series[0])
    longest = MAX_LATE_SERIES if (series[0]["outcome"], series[0]["reason_code"]) == ("started", "late") else MAX_SERIES
    if len(series) > longest:
        yield _span(series), f"{_times(len(series))} {outcome}", None, None, None
        return
    for row in series:
        run = runs.get(row["scheduled_for"]) if row["outcome"] == "started" else None
        if run is None:
            yield instant(row["scheduled_for"]), outcome, None, None, None
            continue
        window = f"{instant(run['window']['start']) or '…'} – {instant(run['window']['end'])}"
        yield instant(row["scheduled_for"]), outcome, instant(run["started_at"]), window, f"{run['covers']['count']:,}"


def _show_beside(answers: Mapping[str, Mapping[str, Any]]) -> None:
    first = next(iter(answers.values()))
    _headline(first)
    if not first["occurrences"]:
        return
    counts = {
        policy: Counter(["runs", *(_outcome(row, into=False) for row in answer["occurrences"])])
        for policy, answer in answers.items()
    }
    for policy, answer in answers.items():
        counts[policy]["runs"] = len(answer["runs"])
    found = dict.fromkeys(outcome for counted in counts.values() for outcome in counted)
    rows = [
        (outcome, *(f"{counted[outcome]:,}" if counted[outcome] else None for counted in counts.values()))
        for outcome in found
    ]
    say()
    table(("times", *answers), rows, empty="")
    say()
    beside = list(zip(*(answer["occurrences"] for answer in answers.values()), strict=True))
    lines = [
        (_span([rows[0] for rows in series]), f"{len(series):,}", *(_outcome(row, into=False) for row in series[0]))
        for series in _series(beside, lambda rows: [_outcome(row, into=False) for row in rows])
    ]
    _timeline(("for", "times", *answers), lines)


def _timeline(columns: Sequence[str], lines: Sequence[tuple[Any, ...]]) -> None:
    table(columns, lines[:MAX_ROWS], empty="")
    if len(lines) > MAX_ROWS:
        note(f"{len(lines) - MAX_ROWS:,} more lines are left out; -o json has all.")


def _outcome(row: Mapping[str, Any], *, into: bool = True) -> str:
    merged = f" into {instant(row['merged_into'])}" if into and row["merged_into"] else ""
    return f"{row['outcome']} ({row['reason_code']}){merged}"


def _span(series: Sequence[Mapping[str, Any]]) -> str:
    first, last = instant(series[0]["scheduled_for"]), instant(series[-1]["scheduled_for"])
    return str(first) if first == last else f"{first} … {last}"


def _times(count: int) -> str:
    return "1 time" if count == 1 else f"{count:,} times"
