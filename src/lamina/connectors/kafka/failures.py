"""What an error of Kafka means to the caller: the one table, by the names that librdkafka gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException

from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable

TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
_DENIED: Mapping[str, str] = {
    "TOPIC_AUTHORIZATION_FAILED": "Give this user Describe, Read and Write on the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "Give this user Create on the cluster, or create the topic",
    "GROUP_AUTHORIZATION_FAILED": "Give this user Read on groups that begin with `lamina-`",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "Give this user Write and Describe on transactional ids that begin with `lamina-`"
    ),
    "SASL_AUTHENTICATION_FAILED": "Check the name and the password in kafka.sasl.jaas.config",
    "_AUTHENTICATION": (
        "Check kafka.sasl.mechanism, and the name and the password in kafka.sasl.jaas.config"
    ),
    "_SSL": (
        "Check kafka.security.protocol, and the brokers' certificate: that "
        "kafka.ssl.truststore.location has the authority that signed it, that it has not expired, "
        "and that it names the host of kafka.bootstrap.servers"
    ),
    "UNSUPPORTED_SASL_MECHANISM": "Set kafka.sasl.mechanism to one that the brokers have",
    "ILLEGAL_SASL_STATE": "Set kafka.security.protocol and kafka.sasl.mechanism as the brokers do",
}
_REFUSED: Mapping[str, str] = {
    "INVALID_TRANSACTION_TIMEOUT": (
        "Set kafka.transaction.timeout.ms to the brokers' transaction.max.timeout.ms, or less"
    ),
    "INVALID_RECORD": "A compacted topic takes no null keys: give the sink keys without nulls",
    "INVALID_REPLICATION_FACTOR": "Set replication to the number of brokers, or less",
    "INVALID_PARTITIONS": "Set create_partitions to another number",
    "POLICY_VIOLATION": "The brokers have a rule for new topics: create it by hand",
    "INVALID_CONFIG": "The brokers refuse the topic's settings: create it by hand",
    "TOPIC_EXCEPTION": "A topic's name has letters, digits, . _ and -, at most 249 of them",
    "INVALID_TIMESTAMP": "The column of `timestamp` has a time that the topic does not take",
    "_UNKNOWN_PARTITION": "The column of `partition` names one that the topic does not have",
    "_INVALID_ARG": "",
    **dict.fromkeys(TOO_LARGE, "Raise the topic's max.message.bytes (kafka-configs.sh --alter)"),
}
_SETTLING = (
    "_UNKNOWN_PARTITION",
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
)
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID")
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_CLIENT_CERTIFICATE = (
    "The brokers want a certificate from us that they trust: check kafka.ssl.keystore.location"
)
_ALERT = re.compile(r"SSL alert number (?:4[2-9]|116)\b")  # of TLS: they are about certificates
_HOPELESS = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "_RESOLVE")

Call = Callable[[str], None]
"""Told before and after every call that reaches a broker; tests cut there."""


def no_call(_: str) -> None:
    """Nobody listens."""


def is_fenced(error: Any) -> bool:
    """Whether another producer with the same transactional id has begun."""
    return error.name() in _FENCED


def is_hopeless(error: Any) -> bool:
    """Whether waiting for the brokers will not help: a wrong host, name or certificate."""
    return error.name() in _HOPELESS or wants_certificate(error)


def wants_certificate(error: Any) -> bool:
    """Whether a broker has refused our certificate, or that we have none.

    With TLS 1.3 that comes after the handshake, as the end of a connection.
    """
    return _ALERT.search(error.str()) is not None


def denial_advice(error: Any) -> str | None:
    """What to do about an error that says we may not; None if it says something else."""
    return _CLIENT_CERTIFICATE if wants_certificate(error) else _DENIED.get(error.name())


def is_missing(error: Any) -> bool:
    return error.name() in _MISSING


def may_settle(error: Any) -> bool:
    """Whether a broker that has just started, or a topic that is new, would say this, too."""
    return error.name() in (*_MISSING, *_SETTLING)


def typed(error: Any, where: str) -> LaminaError:
    """The error of our tree for a `KafkaError`; its name and text stay in the message."""
    name = error.name()
    text = f"Kafka says: {error.str()} ({name})"
    if (denied := denial_advice(error)) is not None:
        return AccessDenied(text, where=where, advice=denied)
    if name in _MISSING:
        return NotFound(text, where=where, advice="Create the topic, then start again")
    if name in _REFUSED:
        return Refused(text, where=where, advice=_REFUSED[name])
    advice = "Check that the brokers run and can be reached under the names they give"
    return StoreUnavailable(text, where=where, advice=advice)


@contextmanager
def kafka_errors(where: str) -> Iterator[None]:
    """Turn an error of the client into one of our tree."""
    try:
        yield
    except KafkaException as error:
        raise typed(error.args[0], where) from error
