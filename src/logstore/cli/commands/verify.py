"""``logstore verify``: hold everything against everything else, and change nothing."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final

from logstore.cli.commands import Command
from logstore.cli.errors import FINE, FOUND
from logstore.cli.opening import reading
from logstore.cli.options import Directory, Json, OptionalTopic, Quiet
from logstore.cli.output import Output, Shape
from logstore.errors import CorruptionError
from logstore.logdir.verify import verify_topics
from logstore.logdir.watched import WatchedDirectory
from logstore.partition.checking.findings import Finding, OnVerifyProgress, VerifyReport

REPORT: Final = Shape(
    "the report (`verify`)",
    is_sound="whether there is no problem",
    problem_count="all problems, listed or not",
    problems="the first 1,000, each as below",
    notes="what is no fault but worth knowing, each as below",
    partitions="how many were checked",
    segments="how many were checked",
    batches="sound ones",
    records="theirs",
    log_bytes="of `.log` files that were read",
    duration_ms="milliseconds that it took",
)
FINDING: Final = Shape(
    "a problem or a note (in `verify`)",
    kind="what kind of thing it is; [verifying](verify.md#what-to-do) lists them",
    path="the file, or the directory",
    position="where in the file, in bytes; or null",
    base_offset="the first record that is affected; or null",
    last_offset="the last one; or null",
    reason="what is wrong",
    next_step="what to do about it",
)


def verify(
    directory: Directory, topic: OptionalTopic = None, json: Json = False, quiet: Quiet = False
) -> int:
    """Check everything, and change nothing.

    Every batch, index, snapshot and checkpoint; works beside a writer. Ends with 1 if anything is wrong.
    """
    out = Output(json=json, quiet=quiet)
    with out.progress("verifying") as on_bytes:
        report = _verify(
            directory,
            topic,
            None
            if on_bytes is None
            else lambda progress: on_bytes(progress.done_bytes, progress.total_bytes),
        )
    if json:
        out.json(_report_object(report))
    else:
        verdict, *findings = str(report).splitlines()
        out.line(verdict, "green" if report else "bold red")
        for line in findings:
            out.line(line)
    return FINE if report else FOUND


def _verify(directory: str, topic: str | None, on_progress: OnVerifyProgress | None) -> VerifyReport:
    """Where the catalogue is damaged, as the report then says, the topics are those of the directories."""
    try:
        with reading(directory) as store:
            subject = store if topic is None else store[topic]
            return subject.verify(on_progress=on_progress)
    except CorruptionError:
        with closing(WatchedDirectory(directory, ignores_catalogue=True)) as found:
            names = found.topic_names() if topic is None else [found.topic(topic).name]
            return verify_topics(found, names, on_progress, with_store=True)


def _report_object(report: VerifyReport) -> dict[str, Any]:
    return REPORT(
        is_sound=report.is_sound,
        problem_count=report.problem_count,
        problems=[_finding_object(each) for each in report.problems],
        notes=[_finding_object(each) for each in report.notes],
        partitions=report.partition_count,
        segments=report.segment_count,
        batches=report.batch_count,
        records=report.record_count,
        log_bytes=report.log_bytes,
        duration_ms=report.duration_ms,
    )


def _finding_object(finding: Finding) -> dict[str, Any]:
    return FINDING(
        kind=finding.kind.value,
        path=finding.path,
        position=finding.position,
        base_offset=finding.base_offset,
        last_offset=finding.last_offset,
        reason=finding.reason,
        next_step=finding.next_step,
    )


COMMANDS: Final = (Command("verify", verify, (REPORT, FINDING)),)
