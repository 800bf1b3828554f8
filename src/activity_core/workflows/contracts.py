"""What passes between workflows, their steps and those who start them.

One frozen dataclass in, one out. These are stored in histories: fields are only added, with defaults.
"""

from dataclasses import dataclass, field

RUN_WORKFLOW = "RunActivityWorkflow"
FIRE_WORKFLOW = "FireActivityWorkflow"
TASK_WORKFLOW = "TaskWorkflow"
SETTLED_SIGNAL = "settled"

# A delivery to these never leaves our database, so it is a local step.
IN_DATABASE_CONSUMERS = ("log", "inbox")


@dataclass(frozen=True)
class FireInput:
    activity_id: str


@dataclass(frozen=True)
class SettleInput:
    """`tick`: the nominal time that the schedule says it fires for, ISO; None when the poller fires."""

    activity_id: str
    tick: str | None


@dataclass(frozen=True)
class SettleResult:
    """What to do now, nominal times as ISO. `head`: run it, and settle again after its end. `side_by_side`: start these
    too, all without waiting for their ends. `issue`: ask the schedule for these first, which brings fires that run them.
    `wait_seconds`: when there is nothing to run now, the next time is due then. `only_this`: after the head comes another
    fire, which has been asked for."""

    head: str | None
    side_by_side: list[str] = field(default_factory=list)
    issue: list[str] = field(default_factory=list)
    wait_seconds: float | None = None
    only_this: bool = False


@dataclass(frozen=True)
class CatchUpInput:
    activity_id: str
    times: list[str]


@dataclass(frozen=True)
class AdoptInput:
    activity_id: str
    key: str


@dataclass(frozen=True)
class AdoptResult:
    """`running`: its workflow is open. `decided`: the row waits no more. `adopted`: an end that came before `log_run` was
    recorded. `restart`: the workflow was refused by the gate and the row reopened since: its ID may be used again."""

    verdict: str


@dataclass(frozen=True)
class RunInput:
    """`key`: the occurrence's key, as in the workflow ID."""

    activity_id: str
    key: str


@dataclass(frozen=True)
class BeginInput:
    """`execution_run_id`: Temporal's first_execution_run_id, which survives reset, retry and continue-as-new."""

    activity_id: str
    key: str
    execution_run_id: str


@dataclass(frozen=True)
class ContextStep:
    position: int
    timeout_seconds: int


@dataclass(frozen=True)
class BeginResult:
    """`verdict`: `go` (the run is ours, and open), `ended`, `refused` (the row was decided otherwise: end without effect)
    or `later` (the row waits: ask again, and never end, because the workflow ID is used up).
    `resolve`: context still to be fetched; only then is there something to do before `advance`. `again`: as there."""

    verdict: str
    run_id: str = ""
    resolve: list[ContextStep] = field(default_factory=list)
    again: bool = False


@dataclass(frozen=True)
class ResolveInput:
    """`tries`: how often the source is asked before its failure is the run's, with a pause in between."""

    run_id: str
    position: int
    tries: int = 3
    pause_seconds: int = 1


@dataclass(frozen=True)
class AdvanceInput:
    run_id: str


@dataclass(frozen=True)
class AdvanceResult:
    """`again`: there is more to do at once; without it the run waits for its tasks."""

    ended: bool
    again: bool = False


@dataclass(frozen=True)
class EndRunInput:
    run_id: str
    status: str
    reason: str


@dataclass(frozen=True)
class TaskInput:
    """Seconds throughout; `deadline_seconds` and `maximum_attempts` None mean no limit."""

    task_id: str
    consumer: str
    attempt_timeout_seconds: int = 30
    deadline_seconds: int | None = None
    maximum_attempts: int | None = None
    initial_interval_seconds: int = 1
    backoff_coefficient: float = 2.0
    maximum_interval_seconds: int = 300


@dataclass(frozen=True)
class DeliverInput:
    task_id: str
    consumer: str


@dataclass(frozen=True)
class CloseTaskInput:
    task_id: str
    state: str
    reason: str


@dataclass(frozen=True)
class Done:
    """A step that answers nothing; room for what it may answer later."""
