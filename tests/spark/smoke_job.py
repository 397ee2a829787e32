"""A small engine on Spark, as a process of its own: epochs, COMMITs, checkpoints, and a kill.

    python -m tests.spark.smoke_job WORK --partitions 2 --die-in 3 --at task

It goes on where the last one stopped. When all slices are done it writes what the state says, and
what Spark says to the same query over all rows at once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import vectorized_udf
from pyspark.util import PythonEvalType

from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.state import check_keys, save, settle
from lamina.clock import SystemClock, new_writer_id
from lamina.disk import LocalDisk
from lamina.format.commit import CheckpointRecord, CommitRecord
from lamina.format.manifest import with_operators
from lamina.format.manifest_model import CheckpointManifest, ConnectorCheckpoint
from lamina.recovery.manager import RecoveryConfig, RecoveryManager
from lamina.recovery.operators import EpochRange, FoundState, found_states, wal_run
from lamina.state.local import RunFolder
from lamina.state.operator import OperatorState
from lamina.state.partition import StatePartition
from lamina.state.run import Run
from lamina.state.run_file import open_run
from lamina.store import open_store
from tests.spark.smoke_input import DDL, SLICES, slice_path
from tests.spark.smoke_streams import STREAMS, Stream, stored_schema
from tests.spark.smoke_task import ANSWER, HASH, VNODE, Answer, Plan, RunAt, run_task

CHECKPOINT_EVERY = 2
SOURCE = "input"
KILLS_IN_TASK, KILLS_AFTER_COMMIT = "task", "commit"


class Job:
    """One process: what it has recovered, and the lists that it keeps since then."""

    def __init__(self, work: Path, spark: SparkSession, partitions: int) -> None:
        self._work = work
        self._spark = spark
        self._partitions = partitions
        self._run_id = new_writer_id(SystemClock())
        self._home = work / "home"
        self._folder = RunFolder(work / "runs" / self._run_id)
        self._checkpointer = Checkpointer(open_store(str(work / "store")))
        self._recovered = RecoveryManager(
            LocalDisk(self._home),
            self._checkpointer,
            scratch=self._folder.path,
            config=RecoveryConfig(partitions=partitions),
        ).run()
        state = self._recovered.state
        self._head = state.head
        self._base = state.manifest
        self._commits = list(state.replayed)
        self.next_epoch = state.next_epoch
        done = state.source_offsets.get(SOURCE)
        self.next_slice = int(done.offsets["slice"]) + 1 if done else 0
        self._wal: dict[str, EpochRange] = {}
        self.states = self._open_states()
        say(
            "recovered",
            state.report.epoch,
            dropped=state.report.entries_dropped,
            replayed=state.report.epochs_replayed,
            checkpoint=state.report.checkpoint_epoch,
        )

    def run_epoch(self, *, die_at: str | None) -> None:
        """One slice through all streams; it counts with the COMMIT, all of it or nothing."""
        answers = {
            name: self._run_stream(stream, kill=die_at == KILLS_IN_TASK and name == "nested")
            for name, stream in STREAMS.items()
        }
        self._commit([a.wal for by_p in answers.values() for a in by_p.values() if a.wal])
        if die_at == KILLS_AFTER_COMMIT:
            os.killpg(0, signal.SIGKILL)
        merged = self._advance(answers)
        say("committed", self.next_epoch, slice=self.next_slice, merged=merged)
        self.next_epoch += 1
        self.next_slice += 1

    def checkpoint(self) -> None:
        """What the parent does not have goes to the store; then the checkpoint exists."""
        base, commit = self._base, self._commits[-1]
        begin = self._checkpointer.begin(base.checkpoint_id if base else None, full=base is None)
        saved = save(self._checkpointer, begin, self.states, self._folder)
        manifest = CheckpointManifest(
            checkpoint_id=begin.id,
            epoch=commit.epoch,
            timestamp_ms=begin.timestamp_ms,
            generation=begin.generation,
            parent_id=begin.parent,
            parent_epoch=commit.parent.epoch if commit.parent else None,
            commit_digest=commit.digest,
            parent_commit_digest=commit.parent.digest if commit.parent else None,
            source_offsets=commit.source_offsets,
        )
        self._base = with_operators(manifest, saved.entries())
        entry = self._checkpointer.commit(begin, self._base).entry
        record = CheckpointRecord(entry.id, entry.epoch, entry.manifest_sha256)
        self._recovered.driver.note_checkpoint(record)
        for name, operator in saved.operators.items():
            self.states[name] = settle(self.states[name], operator)
        say("checkpoint", entry.epoch, files=saved.uploaded_files)

    def close(self) -> None:
        self._recovered.close()

    # steps

    def _open_states(self) -> dict[str, OperatorState]:
        """Lists for today's P, whatever it was when the runs were written (R13)."""
        ranges = [
            EpochRange(place, commit.epoch, commit.partitions)
            for commit in self._commits
            for place in commit.ranges
        ]
        self._wal = {_name(each): each for each in ranges}
        disk = self._recovered.home.disk
        found = found_states(self._base, self._recovered.state.files, ranges, disk)
        states = {}
        for name, stream in STREAMS.items():
            schema = stored_schema(
                stream, partials(self._slice(0), stream).limit(0).toArrow().schema
            )
            keyed = self._base.operators[name].keyed if self._base else None
            if keyed is not None:
                check_keys(name, keyed, schema)
            runs = found.get(name, FoundState())
            states[name] = OperatorState.open(
                schema,
                self._partitions,
                merges=stream.merges,
                placed=runs.placed,
                stored=runs.stored,
            )
        return states

    def _run_stream(self, stream: Stream, *, kill: bool) -> dict[int, Answer]:
        state = self.states[stream.name]
        plan = Plan(
            stream.name,
            state.schema,
            state.merges,
            {p: self._list(state, part) for p, part in enumerate(state.partitions)},
            epoch=self.next_epoch,
            generation=self._recovered.driver.generation,
            run_id=self._run_id,
            home=self._home,
            identity=self._recovered.home.identity,
            folder=self._folder.path,
            kill=os.getpgid(0) if kill else None,
        )
        frame = partials(self._slice(self.next_slice), stream)
        placed = frame.repartition(self._partitions, *stream.keys)
        rows = map_in_arrow(placed, partial(run_task, plan), ANSWER).toArrow().to_pylist()
        answers = {row["p"]: Answer.decode(row["answer"]) for row in rows}
        said = sorted((row["operator"], row["p"]) for row in rows)
        assert said == [(stream.name, p) for p in range(self._partitions)], said  # R8
        return answers

    def _commit(self, ranges: list[Any]) -> None:
        driver = self._recovered.driver
        offset = ConnectorCheckpoint.with_offsets(self.next_epoch, {"slice": str(self.next_slice)})
        record = CommitRecord(
            epoch=self.next_epoch,
            generation=driver.generation,
            parent=self._head,
            follows=driver.head,
            partitions=self._partitions,
            source_offsets={SOURCE: offset},
            ranges=tuple(ranges),
        )
        self._head = driver.commit(record)
        self._commits.append(record)

    def _advance(self, answers: Mapping[str, Mapping[int, Answer]]) -> int:
        """New lists: merged runs in the place of their inputs, the epoch's run on top."""
        merged = 0
        for name, by_p in answers.items():
            for p, answer in by_p.items():
                part = self.states[name].partitions[p]
                if answer.merged is not None:
                    part = _replaced(part, answer)
                    merged += 1
                if answer.wal is not None:
                    at = EpochRange(answer.wal, self.next_epoch, self._partitions)
                    self._wal[_name(at)] = at
                    run = wal_run(self._recovered.home.disk, at)
                    part = part.with_run(replace(run, within=part.within))
                self.states[name] = self.states[name].with_partition(p, part)
        return merged

    def _list(self, state: OperatorState, part: StatePartition) -> tuple[RunAt, ...]:
        return tuple(self._at(state, leaf) for run in part.runs for leaf in run.leaves)

    def _at(self, state: OperatorState, run: Run) -> RunAt:
        if run.name in self._wal:
            return RunAt(run.name, run.within, wal=self._wal[run.name])
        if run.path is not None:
            return RunAt(run.name, run.within, path=run.path)
        return RunAt(run.name, run.within, inline=state.stored[run.name].decode_inline())

    def _slice(self, number: int) -> DataFrame:
        return read(self._spark, self._work, [number])


def _name(each: EpochRange) -> str:
    return f"{each.place.segment}:{each.place.offset}"


def _replaced(part: StatePartition, answer: Answer) -> StatePartition:
    assert answer.merged is not None
    names = [run.name for run in part.runs]
    start = names.index(answer.inputs[0])
    end = start + len(answer.inputs)
    assert tuple(names[start:end]) == answer.inputs, (names, answer.inputs)
    made = replace(open_run(answer.merged), within=part.within, inputs=answer.inputs)
    return part.with_runs((*part.runs[:start], made, *part.runs[end:]))


# Spark


def read(spark: SparkSession, work: Path, slices: list[int]) -> DataFrame:
    paths = [str(slice_path(work / "input", number)) for number in slices]
    return spark.read.schema(DDL).parquet(*paths)


def partials(rows: DataFrame, stream: Stream) -> DataFrame:
    """Partial aggregates, with the two columns that say where a key lives."""
    keys = ", ".join(stream.keys)
    return grouped(rows, stream, stream.partials).selectExpr(
        "*", f"pmod(hash({keys}), 256) AS {VNODE}", f"xxhash64({keys}) AS {HASH}"
    )


def grouped(rows: DataFrame, stream: Stream, aggregates: Mapping[str, str]) -> DataFrame:
    keyed = rows.selectExpr("*", *(f"{sql} AS key_{name}" for name, sql in stream.keys.items()))
    spark = rows.sparkSession
    selected = [
        *(f"key_{name} AS {name}" for name in stream.keys),
        *(f"{sql} AS {name}" for name, sql in aggregates.items()),
    ]
    names = ", ".join(f"key_{name}" for name in stream.keys)
    return spark.sql(f"SELECT {', '.join(selected)} FROM {{rows}} GROUP BY {names}", rows=keyed)


def map_in_arrow(frame: DataFrame, task: Any, schema: str) -> DataFrame:
    """`DataFrame.mapInArrow`, which asks for pandas first and then does not use it."""
    function = vectorized_udf(task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*(frame[name] for name in frame.columns))
    return DataFrame(cast(Any, frame)._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def session(partitions: int, *, zone: str, large: bool) -> SparkSession:
    """A local Spark; *zone* and *large* are what users may set, and change the Arrow they get."""
    conf: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": zone,
        "spark.sql.execution.arrow.useLargeVarTypes": str(large).lower(),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",  # so a task gets several
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than these few rows
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]").appName("lamina-smoke")
    spark = builder.config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_results(job: Job, spark: SparkSession, work: Path) -> None:
    """The state as people would see it, and the same query over all rows."""
    rows = read(spark, work, list(range(SLICES)))
    for name, stream in STREAMS.items():
        state = job.states[name]
        batches = [batch for part in state.partitions for batch in part.scan()]
        table = pa.Table.from_batches(batches, state.schema.row)
        final = [f"{output.final} AS {column}" for column, output in stream.outputs.items()]
        # Its types come from the query: by Arrow's alone a TIMESTAMP_NTZ would be a TIMESTAMP.
        types = grouped(rows, stream, stream.partials).schema
        seen = spark.createDataFrame(table, types).selectExpr(*stream.keys, *final)
        batch = grouped(rows, stream, {c: o.batch for c, o in stream.outputs.items()})
        _write(seen.toArrow(), work / "results" / f"{name}.state.arrow")
        _write(batch.toArrow(), work / "results" / f"{name}.batch.arrow")


def _write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


def say(what: str, epoch: int, **more: int) -> None:
    print(json.dumps({"what": what, "epoch": epoch, **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--zone", default="UTC")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--die-in", type=int, default=0, metavar="EPOCH")
    parser.add_argument("--at", choices=[KILLS_IN_TASK, KILLS_AFTER_COMMIT])
    args = parser.parse_args()
    spark = session(args.partitions, zone=args.zone, large=args.large)
    job = Job(args.work, spark, args.partitions)
    while job.next_slice < SLICES:
        epoch = job.next_epoch
        job.run_epoch(die_at=args.at if epoch == args.die_in else None)
        if epoch % CHECKPOINT_EVERY == 0:
            job.checkpoint()
    write_results(job, spark, args.work)
    job.close()
    spark.stop()


if __name__ == "__main__":
    main()
