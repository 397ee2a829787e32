"""A Kafka topic as a sink: the rows of an epoch and the mark are one transaction.

    init      a new producer: from now on nothing that an older one sends is taken
    read      the mark, and judge it: is this epoch next, done already, or somebody else's?
    produce   the rows, then the mark
    commit    readers with isolation.level=read_committed see all of it, or nothing

Killed before the commit, the transaction is aborted by the next producer, or by the brokers after
transaction.timeout.ms. Killed at it, the next producer waits for its outcome and reads the mark.
An old process that starts late fences the new one at the brokers, reads the higher generation and
stops; the new one makes another producer, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaException, Producer

from lamina.clock import Clock, SystemClock
from lamina.connectors.kafka.ahead import made_ahead
from lamina.connectors.kafka.ends import Ends, written_since
from lamina.connectors.kafka.failures import Call, is_fenced, no_call, typed
from lamina.connectors.kafka.mark import Mark, encode_key, encode_mark, position_of
from lamina.connectors.kafka.mark import transactional_id as id_of
from lamina.connectors.kafka.marks import Hanging, Marks
from lamina.connectors.kafka.messages import Layout, Messages, batches_to_send, messages_of
from lamina.connectors.kafka.producers import SETTINGS, Producers, break_off
from lamina.connectors.kafka.sending import QUEUE, Sending
from lamina.connectors.kafka.topics import BATCH_OVERHEAD, Place, Topics
from lamina.connectors.staged import staged_batches, without_stream
from lamina.engine.ports import Change, Publication
from lamina.errors import LaminaError, StoreUnavailable
from lamina.format.pipeline_record import Owner
from lamina.os_errors import typed_errors
from lamina.protocol.sinks import Publish, SinkPosition, check_fence, check_owner, judge_publish

T = TypeVar("T")
ATTEMPTS = 10
AHEAD = 4
"""Chunks of messages that are encoded while a client waits for the brokers."""
_WAIT_MS = 64
_MESSAGE_MAX = 1_000_000_000  # librdkafka has no more
_SHARED = {
    "client.id": "lamina",
    "reconnect.backoff.max.ms": "2000",
    # Else librdkafka connects when it must, and waits half a second where it could go on at once.
    "enable.sparse.connections": "false",
}


NO_LAYOUT = Layout(())
"""Of a sink that was opened without its stream: it can be claimed and moved, and gets no rows."""


class Values(Protocol):
    """How rows become bytes."""

    def check(self) -> None:
        """Before a sink is claimed: whether they can. May ask a registry, and changes nothing."""
        ...

    def begin(self) -> None:
        """When a sink is claimed: what has to be known of them outside is made known."""
        ...

    def encode(self, batch: pa.RecordBatch) -> pa.Array: ...


_FINISHED = ("_STATE", "_FATAL")
"""What a producer says to every later call when it was fenced before; `fatal()` is false then."""


class _Again(Exception):
    """A producer is of no use any more; whether it has committed, the mark says."""


class KafkaSink:
    """One topic."""

    takes = frozenset(Change)

    def __init__(
        self,
        name: str,
        place: Place,
        settings: Mapping[str, str],
        *,
        layout: Layout,
        values: Values,
        delivery: str,
        clock: Clock | None = None,
        call: Call = no_call,
    ) -> None:
        """*settings* are librdkafka's. Nothing is asked yet."""
        self.name, self.delivery = name, delivery
        self._place, self._layout, self._values = place, layout, values
        self._clock, self._call = clock or SystemClock(), call
        self._shared = {**_SHARED, **settings, "log_level": 0}
        self._topics = Topics(place, self._shared, clock=self._clock, call=call)
        self._producers = Producers(
            {**SETTINGS, **self._shared, **QUEUE, "transactional.id": id_of(place.topic)},
            timeout_s=place.timeout_s,
            call=call,
        )
        self._transaction_s = int(settings.get("transaction.timeout.ms", 60_000)) / 1000
        self._size_max = int(settings.get("message.max.bytes", 0))  # 0: what the topic takes
        self._batch_max = int(settings.get("batch.size", 1_000_000))
        self._ends = Ends(place, clock=self._clock, call=call)
        self._opened_marks: Marks | None = None
        self._has_marks = False  # there is a mark topic
        self._is_ready = False  # topics and schemas are there: this process has looked

    def position(self) -> SinkPosition:
        with typed_errors(self._place.where):
            return position_of(self._look())

    def fence(self, generation: int, pipeline: Owner) -> SinkPosition:
        def check(position: SinkPosition) -> None:
            check_owner(position, pipeline)
            check_fence(position, generation)

        with typed_errors(self._place.where):
            check(position_of(self._look()))
            self._make_ready()
            return self._repeated(partial(self._claim, generation, pipeline, check), check)

    def publish(self, publication: Publication) -> None:
        def judge(position: SinkPosition) -> Publish:
            return judge_publish(
                position,
                publication.point,
                pipeline=publication.pipeline,
                generation=publication.generation,
            )

        if publication.rows and self._layout is NO_LAYOUT:
            raise without_stream(self.name)
        with typed_errors(self._place.where):
            if not self._is_ready:
                judge(position_of(self._look()))
                self._make_ready()
            self._repeated(partial(self._publish, publication, judge), judge)

    def close(self) -> None:
        self._producers.drop()
        if self._opened_marks is not None:
            self._opened_marks.close()
            self._opened_marks = None

    # steps

    def _look(self) -> Mark | None:
        """The mark, without changing anything."""
        if not self._has_marks:
            self._has_marks = self._topics.look(self._marks.client, self._marks.heard)
            self._values.check()
        return self._marks.read() if self._has_marks else None

    def _make_ready(self) -> None:
        """What a transaction needs, once for each process."""
        self._values.begin()
        limit = self._topics.create(self._marks.client)
        batch = {"batch.size": min(limit, self._batch_max)}
        if not self._size_max:
            self._size_max = limit
            # The client counts what is around a message: room for that, as the topic has it.
            batch["message.max.bytes"] = min(limit + BATCH_OVERHEAD, _MESSAGE_MAX)
        self._producers.change(batch)
        self._has_marks = self._is_ready = True

    def _claim(
        self, generation: int, pipeline: Owner, check: Callable[[SinkPosition], None]
    ) -> SinkPosition:
        producer = self._new_producer()
        mark = self._read_settled(producer, check)
        check(position_of(mark))
        before = mark or self._mark(Owner(), 0, None, 0)
        pipeline = pipeline or before.pipeline
        claim = replace(before, pipeline=pipeline, generation=generation, is_claim=True)
        if mark is not None and claim.position == mark.position:
            self._producers.keep(producer)
        else:
            self._commit(producer, claim, ())
        return claim.position

    def _publish(self, publication: Publication, judge: Callable[[SinkPosition], Publish]) -> None:
        with made_ahead(self._messages(publication), AHEAD) as messages:
            producer = self._new_producer()
            last = self._read_settled(producer, judge)
            if judge(position_of(last)) is Publish.DONE:
                self._producers.keep(producer)
                return
            ends = self._ends.now(self._marks.any_client)
            if last is not None and last.point is not None:
                self._ends.check_closed(self._marks.client, before=last.before, ends=ends)
            mark = self._mark(
                publication.pipeline, publication.generation, publication.point, publication.rows
            )
            self._commit(producer, replace(mark, before=ends), messages)

    def _messages(self, publication: Publication) -> Generator[Messages, None, None]:
        for batch in batches_to_send(staged_batches(publication), self._layout):
            yield from messages_of(batch, self._layout, self._values.encode)

    def _read_settled(
        self, producer: Producer, check: Callable[[SinkPosition], object]
    ) -> Mark | None:
        """The mark; what hangs is aborted first, if it is ours and no reader has seen any of it."""
        try:
            return self._marks.read_after_init()
        except Hanging as hanging:
            check(position_of(self._marks.read()))
            open_marks = self._marks.open()
            written = self._written(open_marks)
            if not open_marks or written is None:
                raise hanging.error from None
            self._end(producer, open_marks[0], written)
            raise _Again("a transaction that hung was aborted") from hanging

    def _written(self, open_marks: Sequence[Mark]) -> list[int] | None:
        """Partitions with rows of what hangs; None if readers may have seen any of them."""
        epochs = [mark for mark in open_marks if not mark.is_claim]
        if not epochs:
            return []
        ends = self._ends.now(self._marks.any_client)
        stable = self._ends.now(self._marks.client)
        return written_since(epochs[0].before, stable=stable, ends=ends)

    def _end(self, producer: Producer, mark: Mark, partitions: Sequence[int]) -> None:
        """Abort what hangs: a producer's marker ends all that its transactional id has open."""
        try:
            producer.begin_transaction()
            producer.produce(self._place.mark_topic, encode_mark(mark), encode_key(mark.topic), 0)
            for number in partitions:
                producer.produce(self._place.topic, b"", b"", number)
            if producer.flush(self._place.timeout_s):
                raise StoreUnavailable("the brokers take no messages", where=self._place.where)
            producer.abort_transaction(self._place.timeout_s)
        except KafkaException as error:
            raise typed(error.args[0], self._place.where) from error

    def _commit(self, producer: Producer, mark: Mark, messages: Iterable[Messages]) -> None:
        """One transaction; _Again if it is not known whether it happened."""
        sending = Sending(
            producer,
            self._place.topic,
            size_max=self._size_max,
            patience_s=self._transaction_s,
            clock=self._clock,
        )
        commits = False
        try:
            producer.begin_transaction()
            self._send(messages, sending)
            self._call("send the mark")
            sending.send_mark(self._place.mark_topic, encode_key(mark.topic), encode_mark(mark))
            self._call("commit")
            commits = True
            producer.commit_transaction(self._transaction_s)
            self._call("committed")
        except KafkaException as error:
            failure = self._failure(error.args[0], sending, commits=commits)
            break_off(producer)
            raise failure from error
        except Exception:
            break_off(producer)
            raise
        self._marks.wait_for(mark)

    def _send(self, messages: Iterable[Messages], sending: Sending) -> None:
        self._call("send rows")
        for chunk in messages:
            sending.send(chunk)
        self._call("have sent rows")

    def _failure(self, error: Any, sending: Sending, *, commits: bool) -> LaminaError | _Again:
        """What a transaction that broke off means; only a broken commit may have happened."""
        told = [error] if sending.failed is None else [error, sending.failed]
        if any(is_fenced(each) or each.fatal() or each.name() in _FINISHED for each in told):
            return _Again(error.str())
        if sending.failed is not None:
            return sending.failure()
        if commits and not error.txn_requires_abort():
            return _Again(error.str())
        return typed(error, self._place.where)

    def _repeated(self, step: Callable[[], T], check: Callable[[SinkPosition], object]) -> T:
        """*step*, with a new producer each time; *check* raises if there is no need any more."""
        why = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._producers.drop()
                wait_ms = 1 + self._clock.random_bits(30) % (_WAIT_MS * attempt)
                self._clock.wait(wait_ms / 1000)
                check(position_of(self._marks.read()))
            try:
                return step()
            except _Again as again:
                why = str(again)
        raise StoreUnavailable(
            f"{ATTEMPTS} transactions were broken off: {why}",
            where=self._place.where,
            advice=f"Look for another process with the transactional id {id_of(self._place.topic)}",
        )

    def _new_producer(self) -> Producer:
        try:
            return self._producers.new()
        except KafkaException as error:
            if is_fenced(error.args[0]):
                raise _Again(error.args[0].str()) from error
            raise typed(error.args[0], self._place.where) from error

    def _mark(self, pipeline: Owner, generation: int, point: Any, rows: int) -> Mark:
        return Mark(self._place.topic, self.name, pipeline, generation, point, rows)

    @property
    def _marks(self) -> Marks:
        if self._opened_marks is None:
            self._opened_marks = Marks(
                self._place, self.name, self._shared, clock=self._clock, call=self._call
            )
        return self._opened_marks
