"""Schemas of Avro values, from a Schema Registry: by their ids, each fetched once."""

from __future__ import annotations

import json
from base64 import b64encode
from http import HTTPStatus
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable

ANSWER_S = 15.0
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class SchemaRegistry:
    """The part of Confluent's API that a reader needs."""

    def __init__(self, url: str, login: str = "") -> None:
        """*login* is `user:password`, or nothing."""
        self._url = url.rstrip("/")
        self._login = login

    def schema(self, number: int) -> str:
        """The Avro schema of an id, as JSON."""
        found = self._get(f"/schemas/ids/{number}", f"the schema {number}")
        kind = found.get("schemaType", "AVRO")
        if kind != "AVRO" or found.get("references"):
            what = "refers to others" if kind == "AVRO" else f"is of the type {kind}"
            raise Refused(
                f"the schema {number} {what}",
                where=self._url,
                advice="Only Avro schemas that are whole in themselves can be read",
            )
        return str(found["schema"])

    def probe(self) -> None:
        """Whether it answers, to us."""
        self._get("/schemas/types", "its types of schemas")

    def _get(self, path: str, what: str) -> dict[str, object]:
        request = Request(self._url + path)  # noqa: S310  http or https: the option is checked
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json")
        if self._login:
            request.add_header("Authorization", f"Basic {b64encode(self._login.encode()).decode()}")
        try:
            with urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
                found = json.load(answer)
        except HTTPError as error:
            raise self._meaning(error, what) from error
        except (URLError, TimeoutError, ConnectionError) as error:
            why = getattr(error, "reason", error)
            message = f"the Schema Registry was asked for {what}: {why}"
            raise StoreUnavailable(message, where=self._url) from error
        except ValueError as error:
            raise Refused("what answers is not a Schema Registry", where=self._url) from error
        return found if isinstance(found, dict) else {}

    def _meaning(self, error: HTTPError, what: str) -> LaminaError:
        said = f"{error.code} {error.reason}"
        if error.code in _DENIED:
            message = f"the Schema Registry does not give us {what}: {said}"
            advice = "Check schema.registry.basic.auth.user.info, 'user:password'"
            return AccessDenied(message, where=self._url, advice=advice)
        if error.code == HTTPStatus.NOT_FOUND:
            message = f"the Schema Registry does not have {what}"
            advice = "Is it the registry that the producers use?"
            return NotFound(message, where=self._url, advice=advice)
        message = f"the Schema Registry was asked for {what}: {said}"
        return StoreUnavailable(message, where=self._url)
