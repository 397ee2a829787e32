"""The two topics of a sink: looked at before anything is claimed, created when it is claimed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from lamina.clock import Clock
from lamina.connectors.kafka.failures import Call, is_hopeless, is_missing, kafka_errors, typed
from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable

BATCH_OVERHEAD = 1024
"""Of a message's own limit: what a batch of one has around its key, value and headers, at most."""
_SLICE_S = 0.5
_CREATED_S = 0.02
_STARTED_S = 3.0
_REFUSED_S = 5.0  # for so long a broker may be restarting, if all of them refuse connections
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_MARK_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",  # what is in the newest segment is never compacted
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sink writes, and how topics that are missing are made."""

    servers: str
    topic: str
    mark_topic: str
    timeout_s: float
    create_partitions: int = 0  # 0: the topic must be there
    replication: int = -1  # what the brokers have as their default

    @property
    def where(self) -> str:
        return f"topic {self.topic} of {self.servers}"


class Topics:
    """What the brokers say of the topics."""

    def __init__(
        self, place: Place, settings: Mapping[str, Any], *, clock: Clock, call: Call
    ) -> None:
        self._place, self._settings, self._clock, self._call = place, settings, clock, call
        self._missing: list[NewTopic] = []  # as the last look has found it

    def look(self, client: Consumer, heard: Collection[Any]) -> bool:
        """Whether the mark topic is there. Raises what is wrong with the topics; changes nothing.

        *client* is one that tells its errors to *heard*.
        """
        place = self._place
        self._call("look")
        with kafka_errors(place.where):
            found = self._known(client, heard, place.topic)
            marks = self._partitions(client, heard, place.mark_topic)
        self._call("looked")
        if found is None and not place.create_partitions:
            raise NotFound(
                f"there is no topic {place.topic!r}",
                where=place.servers,
                advice="Create it, or write OPTIONS (create_partitions '3') to have it created",
            )
        if marks not in (None, 1):
            raise Refused(
                f"the mark topic {place.mark_topic!r} has {marks} partitions, and needs one",
                where=place.servers,
                advice="Write OPTIONS (mark_topic '...') with the name of another one",
            )
        self._missing = []
        if found is None:
            self._missing.append(NewTopic(place.topic, place.create_partitions, place.replication))
        if marks is None:
            mark = NewTopic(place.mark_topic, 1, place.replication, config=_MARK_SETTINGS)
            self._missing.append(mark)
        return marks is not None

    def create(self, client: Consumer) -> int:
        """Create what a look has missed; the largest message that the topic takes, in bytes.

        *client* has heard of the mark topic, then.
        """
        place, admin = self._place, AdminClient(dict(self._settings))
        self._call("create")
        with kafka_errors(place.where):
            for new in self._missing:
                self._create(admin, new)
            self._check_kept(self._config(admin, place.mark_topic))
            limit = int(self._config(admin, place.topic)["max.message.bytes"])
            self._introduce(client, place.mark_topic)
        self._call("created")
        return limit - BATCH_OVERHEAD

    # steps

    def _known(self, client: Consumer, heard: Collection[Any], topic: str) -> int | None:
        """As `_partitions`; a broker that has just started may not have heard of all topics."""
        started = self._clock.monotonic()
        patience_s = 0 if self._place.create_partitions else min(_STARTED_S, self._place.timeout_s)
        while True:
            found = self._partitions(client, heard, topic)
            if found is not None or self._clock.monotonic() - started >= patience_s:
                return found
            self._clock.wait(_CREATED_S)

    def _partitions(self, client: Consumer, heard: Collection[Any], topic: str) -> int | None:
        """How many a topic has; None if there is no such topic."""
        found = self._metadata(client, heard, topic).topics[topic]
        if found.error is None:
            return len(found.partitions)
        if is_missing(found.error):
            return None
        raise typed(found.error, f"topic {topic} of {self._place.servers}")

    def _metadata(self, client: Consumer, heard: Collection[Any], topic: str) -> Any:
        """The wait ends early when the client has said that there is nothing to wait for."""
        started = self._clock.monotonic()
        while True:
            try:
                return client.list_topics(topic, timeout=min(_SLICE_S, self._place.timeout_s))
            except KafkaException as error:
                client.poll(0)  # the client's own errors come with it
                waited_s = self._clock.monotonic() - started
                for said in heard:
                    if is_hopeless(said):
                        raise typed(said, self._place.servers) from error
                if waited_s >= min(self._place.timeout_s, _patience_s(heard)):
                    raise _unreachable(heard, self._place.servers, error) from error

    def _create(self, admin: AdminClient, new: NewTopic) -> None:
        topic, timeout_s = new.topic, self._place.timeout_s
        try:
            admin.create_topics([new], operation_timeout=timeout_s)[topic].result(timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._not_created(new, error.args[0]) from error
        except TimeoutError as error:
            message = f"the brokers did not say whether they created the topic {topic!r}"
            raise StoreUnavailable(message, where=self._place.servers) from error

    def _not_created(self, new: NewTopic, error: KafkaError) -> LaminaError:
        if error.code() not in _DENIED:
            return typed(error, f"topic {new.topic} of {self._place.servers}")
        by_hand = " with one partition and cleanup.policy=compact" if new.config else ""
        return AccessDenied(
            f"the topic {new.topic!r} is missing, and may not be created: {error.str()}",
            where=self._place.servers,
            advice=f"Give this user Create on the topic or on the cluster, or create it{by_hand}",
        )

    def _introduce(self, client: Consumer, topic: str) -> None:
        """A client remembers for a while that there is no such topic."""
        started = self._clock.monotonic()
        while True:
            found = client.list_topics(topic, timeout=self._place.timeout_s).topics[topic]
            if found.error is None and all(p.leader >= 0 for p in found.partitions.values()):
                return
            if self._clock.monotonic() - started > self._place.timeout_s:
                message = f"the topic {topic!r} has no leader yet"
                raise StoreUnavailable(message, where=self._place.servers)
            self._clock.wait(_CREATED_S)

    def _config(self, admin: AdminClient, topic: str) -> dict[str, str]:
        """The settings of a topic; one that was created a moment ago is waited for."""
        asked = ConfigResource(ResourceType.TOPIC, topic)
        started = self._clock.monotonic()
        while True:
            try:
                found = admin.describe_configs([asked], request_timeout=self._place.timeout_s)
                config = found[asked].result(self._place.timeout_s)
                return {name: entry.value for name, entry in config.items()}
            except KafkaException as error:
                waited_s = self._clock.monotonic() - started
                if not is_missing(error.args[0]) or waited_s > self._place.timeout_s:
                    raise self._unread(topic, error.args[0]) from error
                self._clock.wait(_CREATED_S)
            except TimeoutError as error:
                message = f"the brokers did not tell the settings of the topic {topic!r}"
                raise StoreUnavailable(message, where=self._place.servers) from error

    def _unread(self, topic: str, error: KafkaError) -> LaminaError:
        if error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return typed(error, f"topic {topic} of {self._place.servers}")
        message = f"the settings of the topic {topic!r} may not be read"
        advice = "Give this user DescribeConfigs on the topic"
        return AccessDenied(message, where=self._place.servers, advice=advice)

    def _check_kept(self, config: Mapping[str, str]) -> None:
        """Refused if the mark could be deleted: the epochs would be published again."""
        deletes = "delete" in config["cleanup.policy"]
        if deletes and (config["retention.ms"], config["retention.bytes"]) != ("-1", "-1"):
            topic = self._place.mark_topic
            raise Refused(
                f"the mark topic {topic!r} deletes old records",
                where=self._place.servers,
                advice=f"kafka-configs.sh --alter --topic {topic} --add-config "
                "cleanup.policy=compact",
            )


def _patience_s(heard: Collection[Any]) -> float:
    down = any(said.name() == "_ALL_BROKERS_DOWN" for said in heard)
    return _REFUSED_S if down else float("inf")


def _unreachable(heard: Collection[Any], servers: str, error: KafkaException) -> StoreUnavailable:
    why = next((said.str() for said in heard if said.name() != "_ALL_BROKERS_DOWN"), None)
    return StoreUnavailable(
        f"Kafka does not answer: {why or error.args[0].str()}",
        where=servers,
        advice="Check kafka.bootstrap.servers and kafka.security.protocol, and that the brokers "
        "run",
    )
