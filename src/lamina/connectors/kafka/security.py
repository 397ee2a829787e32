"""Kafka's security settings in two dialects: those of Java, as Spark's users write them, and those
of librdkafka, which the driver speaks. What has no counterpart is refused by its name.

Certificates and keys are PEM: librdkafka reads no Java key stores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lamina.connectors.options import bad_option, check_secret, option_of
from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSink, DeclaredSource
from lamina.pipeline.tokens import did_you_mean

PREFIX = "kafka."
SERVERS = "kafka.bootstrap.servers"
REGISTRY, REGISTRY_LOGIN = "schema.registry.url", "schema.registry.basic.auth.user.info"
_REGISTRY_URL = re.compile(r"https?://[^@/?#\s]+(/[^@\s]*)?", re.IGNORECASE)
_JAAS = "kafka.sasl.jaas.config"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "kafka.security.protocol": _PROTOCOLS,
    "kafka.sasl.mechanism": _MECHANISMS,
    "kafka.ssl.truststore.type": ("PEM",),
    "kafka.ssl.keystore.type": ("PEM",),
    "kafka.ssl.endpoint.identification.algorithm": ("https", ""),
}
SECRETS = (_JAAS, "kafka.ssl.key.password", "kafka.ssl.keystore.key")
_SAME: Mapping[str, str] = {
    "kafka.security.protocol": "security.protocol",
    "kafka.sasl.mechanism": "sasl.mechanism",
    "kafka.ssl.truststore.location": "ssl.ca.location",
    "kafka.ssl.truststore.certificates": "ssl.ca.pem",
    "kafka.ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "kafka.ssl.keystore.key": "ssl.key.pem",
    "kafka.ssl.key.password": "ssl.key.password",
}
NAMES = (
    *_SAME,
    _JAAS,
    "kafka.ssl.truststore.type",
    "kafka.ssl.keystore.type",
    "kafka.ssl.keystore.location",
    "kafka.ssl.endpoint.identification.algorithm",
)
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+required"
    r"((?:\s+\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'))+)\s*;\s*"
)
_PAIR = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')")
_EXAMPLE = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." '
    'password="...";'
)


def check_security(
    of: DeclaredSource | DeclaredSink, further: Mapping[str, str], file: str
) -> None:
    """BadPipeline at the first setting that is wrong; values that may be secret are not shown."""
    for name, value in further.items():
        option = option_of(of, name)
        assert option is not None, name
        if name in SECRETS:
            check_secret(of, name, option, file)
        choices = _CHOICES.get(name)
        if choices is not None and value not in choices:
            shown = ", ".join(each or "''" for each in choices)
            raise bad_option(of, f"has the {name} {option.written!r}", file, f"It can be {shown}")
    _check_together(of, further, file)


def check_registry_url(of: DeclaredSource | DeclaredSink, file: str) -> None:
    """BadPipeline for an address that is none; one with an @, which may follow a password, is not
    shown."""
    option = option_of(of, REGISTRY)
    if option is None or not option.value or _REGISTRY_URL.fullmatch(option.value):
        return
    message = f"has the {REGISTRY} {option.written!r}"
    if "@" in option.value:
        message = f"has a name or a password in {REGISTRY}"
    advice = f"Write 'http://host:8081', and a login into {REGISTRY_LOGIN}"
    raise bad_option(of, message, file, advice)


def unknown_setting(
    of: DeclaredSource | DeclaredSink, name: str, known: tuple[str, ...], file: str
) -> BadPipeline:
    """For a setting of Kafka's client that is not mapped to both dialects."""
    if "jks" in name or name.endswith("store.password"):
        advice = "Certificates and keys are PEM files: kafka.ssl.truststore.type 'PEM'"
    else:
        advice = did_you_mean(name, known) or f"Known are {', '.join(known)}"
    return bad_option(of, f"has the option {name!r}, which is not supported", file, advice)


def _check_together(
    of: DeclaredSource | DeclaredSink, further: Mapping[str, str], file: str
) -> None:
    for store in ("truststore", "keystore"):
        location = f"kafka.ssl.{store}.location"
        if location in further and f"kafka.ssl.{store}.type" not in further:
            advice = f"Write kafka.ssl.{store}.type 'PEM': Java's default is a key store of its own"
            raise bad_option(of, f"has a {location} without its type", file, advice)
    uses_login = further.get("kafka.security.protocol", "").startswith("SASL_")
    if uses_login and (_JAAS not in further or "kafka.sasl.mechanism" not in further):
        advice = f"Write kafka.sasl.mechanism and {_JAAS}"
        raise bad_option(of, "logs in by SASL, and does not say how", file, advice)
    if _JAAS in further and _login(further[_JAAS]) is None:
        message = f"has a {_JAAS} that is not a login with a name and a password"
        raise bad_option(of, message, file, f"It looks like this: {_EXAMPLE}")


def driver_settings(servers: str, further: Mapping[str, str]) -> dict[str, str]:
    """For librdkafka; *further* are the settings under `kafka.`, checked."""
    settings = {"bootstrap.servers": servers}
    settings |= {_SAME[name]: value for name, value in further.items() if name in _SAME}
    if (keys := further.get("kafka.ssl.keystore.location")) is not None:
        settings |= {"ssl.certificate.location": keys, "ssl.key.location": keys}
    if (login := _login(further.get(_JAAS, ""))) is not None:
        settings |= {"sasl.username": login[0], "sasl.password": login[1]}
    algorithm = further.get("kafka.ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        settings["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    return settings


def _login(jaas: str) -> tuple[str, str] | None:
    """Name and password of a JAAS text; None if it is anything else."""
    found = _LOGIN.fullmatch(jaas)
    if found is None:
        return None
    pairs = {name: _unescaped(one or two) for name, one, two in _PAIR.findall(found[1])}
    return (
        (pairs["username"], pairs["password"]) if set(pairs) == {"username", "password"} else None
    )


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
