"""Reading the mark: committed records only, up to the last stable offset that the leader tells.

What was read is kept with the offset behind it, so that a look at a mark that has not changed is
one question to the broker. A new process begins near the end: the newest record is all it needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lamina.clock import Clock
from lamina.connectors.kafka.failures import Call, kafka_errors, may_settle, typed
from lamina.connectors.kafka.mark import Mark, check_sink, decode_mark, encode_key
from lamina.connectors.kafka.topics import Place
from lamina.errors import Refused, StoreUnavailable

_TAILS = (64, 4096)  # offsets from the end; then everything
_HEARD_MAX = 100
_LOOK_S = 0.002
_OPEN_S = 2.0
_MISSING_S = 0.05
_TRANSACTION = 2
"""Offsets that a transaction takes in the mark topic: its record, and the broker's control one."""


@dataclass(frozen=True, slots=True)
class _Known:
    mark: Mark | None
    end: int  # nothing before this offset is unknown


class Hanging(Exception):
    """A transaction is neither committed nor aborted, and no producer is left to end it."""

    def __init__(self, where: str, end: int) -> None:
        super().__init__(where)
        self.error = StoreUnavailable(
            f"a transaction hangs before offset {end}: whether it happened cannot be told",
            where=where,
            advice="See `A transaction that hangs` in docs/connectors.md",
        )


class Marks:
    """The mark topic of one sink."""

    def __init__(
        self, place: Place, sink: str, settings: Mapping[str, Any], *, clock: Clock, call: Call
    ) -> None:
        self._place, self._sink, self._clock, self._call = place, sink, clock, call
        self._known: _Known | None = None
        self.heard: deque[Any] = deque(maxlen=_HEARD_MAX)  # what clients said of connections
        common = {**settings, "group.id": f"lamina-{place.topic}"}  # needed, and never joined
        common |= {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,  # the end is told after that time
            "error_cb": self.heard.append,
        }
        self.client = Consumer({**common, "isolation.level": "read_committed"})
        self.any_client = Consumer({**common, "isolation.level": "read_uncommitted"})

    def read_after_init(self) -> Mark | None:
        """As `read`, for who has a new producer: nothing may be open in the topic any more.

        A broker that restarts can forget to finish a transaction whose commit it has answered. Its
        rows would then come out with those of the next one. Hanging for that.
        """
        self._call("look for open transactions")
        started = self._clock.monotonic()
        with kafka_errors(self._where):
            while self._ends()[1] < (end := self._ends(self.any_client)[1]):
                if self._clock.monotonic() - started > min(_OPEN_S, self._place.timeout_s):
                    raise Hanging(self._where, end)
                self._clock.wait(_LOOK_S)
        return self.read()

    def open(self) -> list[Mark]:
        """What hangs: marks behind the last stable offset, oldest first. Refused if not ours."""
        with kafka_errors(self._where):
            found = self._between(self._ends()[1], self._ends(self.any_client)[1], self.any_client)
        return [mark for mark in found if mark is not None]

    def read(self) -> Mark | None:
        """The newest committed mark; None if there is none. Refused if it is of another sink."""
        self._call("read the mark")
        with kafka_errors(self._where):
            start, end = self._ends()
            if self._known is None or end != self._known.end:
                self._known = self._news(start, end)
        self._call("have read the mark")
        mark = self._known.mark
        check_sink(mark, self._sink, self._where)
        return mark

    def wait_for(self, mark: Mark) -> None:
        """*mark* was committed on top of what was read: wait until readers see it.

        Brokers answer a commit before it is visible. StoreUnavailable if that takes too long; the
        next producer then waits for it, and reads the mark.
        """
        assert self._known is not None, "it is written on top of one that was read"
        wanted, before = self._known.end + _TRANSACTION, self._known
        self._known = None
        started = self._clock.monotonic()
        self._call("see the mark")
        with kafka_errors(self._where):
            while (end := self._ends()[1]) < wanted:
                if self._clock.monotonic() - started > self._place.timeout_s:
                    message = "an epoch was committed, and is not visible yet"
                    raise StoreUnavailable(message, where=self._where)
                self._clock.wait(_LOOK_S)
        self._call("have seen the mark")
        self._known = _Known(mark, end) if end == wanted else before

    def close(self) -> None:
        self.client.close()
        self.any_client.close()

    # steps

    @property
    def _where(self) -> str:
        return f"topic {self._place.mark_topic} of {self._place.servers}"

    def _ends(self, client: Consumer | None = None) -> tuple[int, int]:
        """The first offset and the last stable one, as the leader has them now.

        For a client that reads uncommitted records, too, the last one is the end of the log.

        A broker that has just started may not have heard of the topic yet.
        """
        topic, timeout_s = self._place.mark_topic, self._place.timeout_s
        started = self._clock.monotonic()
        while True:
            try:
                partition = TopicPartition(topic, 0)
                asked = client or self.client
                first, last = asked.get_watermark_offsets(partition, timeout=timeout_s)
                return int(first), int(last)
            except KafkaException as error:
                if not may_settle(error.args[0]) or self._clock.monotonic() - started > timeout_s:
                    raise
                self._clock.wait(_MISSING_S)
                (client or self.client).list_topics(topic, timeout=timeout_s)  # it remembers none

    def _news(self, start: int, end: int) -> _Known:
        """What is known when everything before *end* has been read."""
        known = self._known
        if known is not None and known.end < end:  # else the topic is another one
            marks = self._between(known.end, end)
            return _Known(marks[-1] if marks else known.mark, end)
        for tail in _TAILS:
            if end - tail <= start:
                break
            if marks := self._between(end - tail, end):
                return _Known(marks[-1], end)
        marks = self._between(start, end)
        return _Known(marks[-1] if marks else None, end)

    def _between(self, start: int, end: int, client: Consumer | None = None) -> list[Mark | None]:
        """The marks in a range, oldest first; None for one that somebody has deleted."""
        if start >= end:
            return []
        marks: list[Mark | None] = []
        client = client or self.client
        client.assign([TopicPartition(self._place.mark_topic, 0, start)])
        try:
            started = self._clock.monotonic()
            while True:
                message = client.poll(self._place.timeout_s)
                if self._clock.monotonic() - started > self._place.timeout_s:
                    raise StoreUnavailable("the mark could not be read in time", where=self._where)
                if message is None:
                    continue
                error, offset = message.error(), message.offset() or 0
                is_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
                if error is not None and not is_end and not error.retriable():
                    raise typed(error, self._where)
                if (error is None or is_end) and offset >= end:
                    return marks
                if error is None:
                    marks.append(self._mark(message))
        finally:
            client.unassign()

    def _mark(self, message: Any) -> Mark | None:
        if message.key() != encode_key(self._place.topic):
            raise Refused(
                f"the mark topic {self._place.mark_topic!r} is used for another topic than "
                f"{self._place.topic!r}: it holds the key {message.key()!r}",
                where=self._where,
                advice="Write OPTIONS (mark_topic '...') with the name of another one",
            )
        value = message.value()
        return None if value is None else decode_mark(value, f"{self._where}, {message.offset()}")
