"""Options `kafka.*` of a sink, in the words of librdkafka.

Security is written as Java's clients do (security.py). All else is passed on: names that both
clients know as they are, a few that Java calls otherwise translated.
"""

from __future__ import annotations

from collections.abc import Mapping

from lamina.connectors.kafka.security import (
    NAMES,
    PREFIX,
    SERVERS,
    check_security,
    driver_settings,
    unknown_setting,
)
from lamina.connectors.kinds import Given
from lamina.connectors.options import bad_option
from lamina.pipeline.model import DeclaredSink

_RENAMED = {"max.request.size": "message.max.bytes"}
_JAVA_ONLY = "It names a class of Java's client, which does not write here: leave it out"
_OURS = "The sink sets it: its promise hangs on it"
_REFUSED: Mapping[str, str] = {
    "acks": _OURS,
    "request.required.acks": _OURS,
    "enable.idempotence": _OURS,
    "transactional.id": _OURS,
    "enable.gapless.guarantee": _OURS,
    "delivery.report.only.error": _OURS,
    "queue.buffering.max.messages": "The sink bounds its queue itself",
    "queue.buffering.max.kbytes": "The sink bounds its queue itself",
    "buffer.memory": "The sink bounds its queue itself",
    "group.id": "Nothing is read in a group",
    "isolation.level": _OURS,
    "enable.auto.commit": _OURS,
    "enable.auto.offset.store": _OURS,
    "enable.partition.eof": _OURS,
    "auto.offset.reset": _OURS,
    "fetch.wait.max.ms": "The sink sets it: it reads nothing but its mark",
    "log_level": "Librdkafka writes no log: what it has to say is in Lamina's errors",
    "key.serializer": _JAVA_ONLY,
    "value.serializer": _JAVA_ONLY,
    "interceptor.classes": _JAVA_ONLY,
    "partitioner.class": "Write kafka.partitioner; murmur2_random, the default, is as Java's own",
    "plugin.library.paths": "A pipeline loads no libraries",
}


def client_settings(sink: DeclaredSink, given: Given) -> dict[str, str]:
    """What every client is made with. BadPipeline for what cannot be meant."""
    security = {name: value for name, value in given.further.items() if _is_security(name)}
    for name in security:
        if name not in NAMES:
            raise unknown_setting(sink, name, NAMES, given.file)
    check_security(sink, security, given.file)
    settings = driver_settings(given.text(SERVERS), security)
    for key, value in given.further.items():
        name = key.removeprefix(PREFIX)
        if name in _REFUSED:
            raise bad_option(sink, f"has the option {key!r}", given.file, _REFUSED[name])
        if key not in security:
            settings[_RENAMED.get(name, name)] = value
    return settings


def _is_security(name: str) -> bool:
    return name.startswith((f"{PREFIX}sasl.", f"{PREFIX}ssl.", f"{PREFIX}security."))


def check_known(sink: DeclaredSink, settings: Mapping[str, str], given: Given) -> None:
    """BadPipeline for a name or a value that librdkafka does not take; no broker is asked."""
    try:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415  an extra
    except ImportError:
        return  # who looks for the extra says so
    local = {name: value for name, value in settings.items() if name != "bootstrap.servers"}
    try:
        Producer({**local, "enable.idempotence": True, "log_level": 0})
    except (KafkaException, TypeError, ValueError) as error:
        found = error.args[0]
        text = found.str() if isinstance(error, KafkaException) else str(found)
        advice = "What follows `kafka.` is a setting of librdkafka (its CONFIGURATION.md)"
        message = f"has a setting that Kafka's client refuses: {text}"
        raise bad_option(sink, message, given.file, advice) from None
