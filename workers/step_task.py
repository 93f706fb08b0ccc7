"""What every task does around its work: claim, keep the lease, work, commit, ring for what follows.

The tasks themselves are one statement each (tasks.py) and the work is in pipeline/flows.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

import structlog
from celery.exceptions import SoftTimeLimitExceeded

from pipeline.errors import CancelledStepError, SourcemillError, TransientError
from pipeline.jobs import Outcome, Step, StepKind, StepState
from pipeline.stores.ledger_sql import Committed, SqlLedger

log = structlog.get_logger()

Output = Mapping[str, Any]
Check = Callable[[], None]
#: Does one step and returns its output.
Single = Callable[[Any, Step, Check], Output]
#: Does the steps of a bundle together and returns their outputs in order.
Together = Callable[[Any, Sequence[Step], Check], Sequence[Output]]
Handler = Callable[[Any, Sequence[Step], "Lease"], list[Outcome]]


class Lease:
    """Keeps claimed steps ours while the work goes on, and knows which were taken away."""

    def __init__(self, ledger: SqlLedger, steps: Sequence[Step], owner: str) -> None:
        self._ledger, self._steps, self._owner = ledger, steps, owner
        self._lease_s = ledger.policies[steps[0].kind].lease_s
        self._renewed_at = time.monotonic()
        self._done = threading.Event()
        self._owned = {step.id for step in steps}
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def check(self, steps: Sequence[Step]) -> None:
        """Raises CancelledStepError when none of the steps is ours any more, also when we slept through the lease."""
        is_over = time.monotonic() - self._renewed_at > self._lease_s
        if is_over or not any(step.id in self._owned for step in steps):
            raise CancelledStepError("The step was cancelled, or its lease ran out and another worker has it.")

    def _beat(self) -> None:
        while not self._done.wait(self._lease_s / 3):
            at = time.monotonic()
            try:
                self._owned = self._ledger.heartbeat(self._steps, self._owner)
                self._renewed_at = at
            except TransientError as error:  # the catalog is away: the lease may run out, the fence protects
                log.warning("heartbeat_failed", error=error.message)


def one_by_one(work: Single) -> Handler:
    """A handler that does each step alone; one step's failure touches no other."""

    def handle(resources: Any, steps: Sequence[Step], lease: Lease) -> list[Outcome]:
        return [_attempt(step, lambda s=step: work(resources, s, lambda: lease.check([s]))) for step in steps]  # type: ignore[misc]

    return handle


def together(work: Together) -> Handler:
    """A handler that does a bundle at once; when that fails, each step alone, so that only the culprit fails."""

    def alone(resources: Any, step: Step, check: Check) -> Output:
        return work(resources, [step], check)[0]

    def handle(resources: Any, steps: Sequence[Step], lease: Lease) -> list[Outcome]:
        if len(steps) == 1:
            return one_by_one(alone)(resources, steps, lease)
        started = time.monotonic()
        try:
            outputs = work(resources, steps, lambda: lease.check(steps))
        except SourcemillError as error:
            log.info("bundle_split", steps=len(steps), error=error.message)
            return one_by_one(alone)(resources, steps, lease)
        share_s = (time.monotonic() - started) / len(steps)
        return [_done(step, output, share_s) for step, output in zip(steps, outputs, strict=True)]

    return handle


def _attempt(step: Step, work: Callable[[], Output]) -> Outcome:
    """One attempt as a value. This is the process edge: whatever a step raises becomes its reason, never a silence."""
    started = time.monotonic()
    try:
        return _done(step, work(), time.monotonic() - started)
    except CancelledStepError as error:
        return _ended(step, StepState.CANCELLED, error.code, error.message)
    except TransientError as error:
        return _ended(step, StepState.READY, error.code, error.message, error.retry_after_s)
    except SourcemillError as error:
        return _ended(step, StepState.FAILED, error.code, error.message)
    except SoftTimeLimitExceeded:
        return _ended(step, StepState.READY, "time_limit", "The step ran over its time limit.")
    except Exception as error:  # a fault of ours: keep its reason with the step, try again, and tell the log
        log.exception("step_crashed", step_id=step.id, kind=step.kind)
        return _ended(step, StepState.READY, "internal_error", f"{type(error).__name__}: {error}")


def _done(step: Step, output: Output, work_s: float) -> Outcome:
    return Outcome(step, StepState.DONE, output, work_s=work_s, peak_rss_bytes=peak_rss_bytes())


def _ended(step: Step, state: StepState, code: str, reason: str, retry_after_s: float | None = None) -> Outcome:
    log.info("step_ended", step_id=step.id, kind=step.kind, state=state, code=code, reason=reason)
    return Outcome(step, state, error_code=code, error=reason[:2000], retry_after_s=retry_after_s)


def peak_rss_bytes() -> int:
    """This process's peak; Linux counts KiB, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Worker:
    """Runs bundles of steps for one process: the loop between the ledger, the handlers and the doorbell."""

    def __init__(
        self,
        resources: Any,
        handlers: Mapping[StepKind, Handler],
        ring: Callable[[Collection[str]], None],
        publish: Callable[[str], None],
    ) -> None:
        self._resources, self._handlers, self._ring, self._publish = resources, handlers, ring, publish
        self._ledger: SqlLedger = resources.ledger

    def run(self, step_ids: Collection[int], owner: str) -> None:
        """Work off a message: its steps, then what follows on the same queue, until there is nothing to go on with."""
        claimed: Sequence[Step] = self._ledger.claim(step_ids, owner)
        while claimed:
            committed = self._work(claimed, owner)
            for subject in committed.final:
                self._publish(subject)
            queue = self._ledger.policies[claimed[0].kind].queue
            self._ring({*committed.queues, queue})
            claimed = committed.continued

    def _work(self, steps: Sequence[Step], owner: str) -> Committed:
        kind, first, started = steps[0].kind, steps[0], time.monotonic()
        with structlog.contextvars.bound_contextvars(kind=kind, subject=first.subject, job_id=first.job_id):
            with Lease(self._ledger, steps, owner) as lease:
                outcomes = self._handlers[kind](self._resources, steps, lease)
            committed = self._ledger.commit(outcomes, owner, stay_on=self._ledger.policies[kind].queue)
            states = Counter(outcome.state.value for outcome in outcomes)
            log.info("steps_committed", late=committed.late, seconds=round(time.monotonic() - started, 3), **states)
        return committed
