"""What the driver asks of a Kafka cluster: topics and their offsets, never rows.

Every call ends: with an answer, or after a while with an error that says what is wrong. A wrong
password or certificate is told at once; a broker that does not answer is waited for.

A client that has lost a connection is not used again: after a broker has been restarted it may
answer FENCED_LEADER_EPOCH for ever. And such a broker knows little for a moment: `is_shaken`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from lamina.clock import Clock, SystemClock
from lamina.connectors.kafka.failures import denial_advice, wants_certificate
from lamina.connectors.kafka.planning import Bounds, Part, Topic
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable

FIRST_ANSWER_S = 15.0
"""Before a pipeline is claimed: a wrong address is told soon."""
ANSWER_S = 60.0
"""Of a running pipeline: a broker may be restarted meanwhile."""
SHAKEN_S = 30.0
"""How long after a lost connection a broker may not know all of its topics and offsets."""
_LOOK_S = 0.1
_DENIED = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001  librdkafka's own codes are called so
    KafkaError._SSL,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_RIGHTS = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_FATAL = {KafkaError._AUTHENTICATION, KafkaError._SSL}  # noqa: SLF001
_AWAY = {
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


class Broker:
    """A Kafka cluster, as one source sees it."""

    def __init__(
        self, settings: Mapping[str, str], source: str, *, clock: Clock | None = None
    ) -> None:
        """*settings* are librdkafka's. Nothing is asked yet."""
        self._source, self._servers = source, settings["bootstrap.servers"]
        self._clock = clock or SystemClock()
        self._errors: list[KafkaError] = []
        self._settings = settings
        self._opened: AdminClient | None = self._open(settings)
        self._shaken_at: float | None = None
        self.patience_s = ANSWER_S

    @property
    def is_shaken(self) -> bool:
        """Whether a connection was lost a moment ago: what seems to be gone may come back."""
        return self._shaken_at is not None and self._clock.monotonic() - self._shaken_at < SHAKEN_S

    @property
    def _client(self) -> AdminClient:
        """A new one, if the last one has lost a connection since it was used."""
        if self._opened is not None:
            self._opened.poll(0)  # errors of connections come by this
            if any(error.code() in _AWAY for error in self._errors):
                self._shake()
        if self._opened is None:
            self._opened = self._open(self._settings)
        self._errors.clear()
        return self._opened

    def _shake(self) -> None:
        self._shaken_at, self._opened = self._clock.monotonic(), None

    def _open(self, settings: Mapping[str, str]) -> AdminClient:
        ours = {"client.id": "lamina", "log_level": 0, "error_cb": self._errors.append}
        try:
            return AdminClient({**settings, **ours})
        except KafkaException as error:
            raise Refused(
                f"the source {self._source!r}: Kafka's client refuses its settings: "
                f"{_text(error.args[0])}",
                where=self._servers,
            ) from error

    def names(self) -> list[str]:
        """Of all topics that we may see."""
        client = self._client
        try:
            found = client.list_topics(timeout=self.patience_s).topics
        except KafkaException as error:
            client.poll(0)
            raise self._meaning(error.args[0], "its topics") from error
        return sorted(found)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those that are there."""
        wanted = sorted(names)
        if not wanted:
            return {}
        asked = self._client.describe_topics(
            TopicCollection(wanted), request_timeout=self.patience_s
        )
        found: dict[str, Topic] = {}
        for name, answer in self._answers(asked, "its topics").items():
            if answer is not None:
                numbers = tuple(sorted(each.id for each in answer.partitions))
                found[name] = Topic(_id(answer.topic_id), numbers, answer.is_internal)
        return found

    def bounds(self, parts: Iterable[Part]) -> dict[Part, Bounds]:
        """The offsets of partitions, up to the last stable one."""
        wanted, client = list(parts), self._client
        first = self._ask(client, wanted, OffsetSpec.earliest())
        last = self._ask(client, wanted, OffsetSpec.latest())
        starts, ends = self._offsets(first), self._offsets(last)
        return {part: Bounds(starts[part], ends[part]) for part in wanted}

    def earliest(self, parts: Iterable[Part]) -> dict[Part, int]:
        return self._offsets(self._ask(self._client, list(parts), OffsetSpec.earliest()))

    def policies(self, topics: Iterable[str]) -> dict[str, str]:
        """What becomes of old rows: `cleanup.policy`."""
        resources = {ConfigResource(ResourceType.TOPIC, name): name for name in topics}
        if not resources:
            return {}
        asked = self._client.describe_configs(list(resources), request_timeout=self.patience_s)
        answers = self._answers(asked, "the settings of its topics")
        return {
            resource.name: answer["cleanup.policy"].value
            for resource, answer in answers.items()
            if answer is not None
        }

    # steps

    def _ask(
        self, client: AdminClient, parts: list[Part], spec: OffsetSpec
    ) -> dict[TopicPartition, Future[Any]]:
        if not parts:
            return {}
        asked: dict[TopicPartition, Future[Any]] = client.list_offsets(
            {TopicPartition(*part): spec for part in parts},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self.patience_s,
        )
        return asked

    def _offsets(self, asked: Mapping[TopicPartition, Future[Any]]) -> dict[Part, int]:
        found: dict[Part, int] = {}
        for part, answer in self._answers(asked, "its offsets").items():
            if answer is None:
                raise NotFound(
                    f"partition {part.partition} of the topic {part.topic!r}, which the source "
                    f"{self._source!r} reads, has gone",
                    where=self._servers,
                )
            if answer.offset < 0:  # a leader that has just changed: nobody is asked, nobody says so
                raise StoreUnavailable(
                    f"the source {self._source!r}: the brokers do not say where partition "
                    f"{part.partition} of the topic {part.topic!r} begins and ends",
                    where=self._servers,
                )
            found[part.topic, part.partition] = answer.offset
        return found

    def _answers(self, asked: Mapping[Any, Future[Any]], what: str) -> dict[Any, Any]:
        """All answers; None for what is not there."""
        client = self._opened
        assert client is not None, "it was asked a moment ago"
        started, waiting = self._clock.monotonic(), set(asked.values())
        while waiting and self._clock.monotonic() - started < self.patience_s + 1:
            _, waiting = wait(waiting, timeout=_LOOK_S, return_when=FIRST_EXCEPTION)
            client.poll(0)
            fatal = [
                error
                for error in self._errors
                if error.code() in _FATAL or wants_certificate(error)
            ]
            if waiting and fatal:
                raise self._meaning(fatal[0], what)
        answers: dict[Any, Any] = {}
        for key, future in asked.items():
            try:
                answers[key] = future.result(timeout=0)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._meaning(error.args[0], what) from error
                answers[key] = None
            except TimeoutError as error:
                raise self._unavailable(what, "it did not answer") from error
        return answers

    def _meaning(self, error: KafkaError, what: str) -> LaminaError:
        """An error of Kafka's as one of ours; what connections said before counts more."""
        denied = [
            each
            for each in (error, *self._errors)
            if each.code() in _DENIED or wants_certificate(each)
        ]
        if denied:
            rights = "Give this user the rights to DESCRIBE and READ"
            is_right = denied[0].code() in _RIGHTS
            return AccessDenied(
                f"the source {self._source!r} may not ask Kafka for {what}: {_text(denied[0])}",
                where=self._servers,
                advice=rights if is_right else denial_advice(denied[0]) or "",
            )
        if error.code() in _AWAY or error.retriable():
            said = [each for each in self._errors if each.code() in _AWAY] or [error]
            return self._unavailable(what, _text(said[0]))
        return Refused(
            f"the source {self._source!r} asked Kafka for {what}: {_text(error)}",
            where=self._servers,
        )

    def _unavailable(self, what: str, why: str) -> StoreUnavailable:
        self._shake()
        return StoreUnavailable(
            f"the source {self._source!r} asked Kafka for {what}: {why}",
            where=self._servers,
            advice="Check kafka.bootstrap.servers and kafka.security.protocol, and that the "
            "brokers can be reached under the names they give",
        )


def _text(error: KafkaError) -> str:
    return str(error.str()).rstrip(".")


def _id(uuid: Uuid) -> str:
    """In hexadecimal digits."""
    halves = uuid.get_most_significant_bits(), uuid.get_least_significant_bits()
    return "".join(f"{half & (1 << 64) - 1:016x}" for half in halves)
