"""A Schema Registry, as Confluent's API has it: a schema in and its number out, and back."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable

ANSWER_S = 15.0
_CONTENT = "application/vnd.schemaregistry.v1+json"
_NO_SCHEMA = 40403
"""What a registry says if it has no schema of this number; a plain 404 is another address."""
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_UNFIT = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """At *url*; *login* is `name:password`, if it wants one."""

    url: str
    login: str = field(default="", repr=False)
    timeout_s: float = ANSWER_S

    def check(self) -> None:
        """Raises if it does not answer, or not to us."""
        self._ask("/schemas/types", "its types of schemas")

    def schema(self, number: int) -> str:
        """The Avro schema with this number, as JSON."""
        found = self.lookup(number)
        if isinstance(found, LaminaError):
            raise found
        return found

    def lookup(self, number: int) -> str | LaminaError:
        """As `schema`; or why there will never be one, if the registry has definitely said so."""
        what = f"the schema {number}"
        answer = self._ask(f"/schemas/ids/{number}", what, absent=_NO_SCHEMA)
        if answer is None:
            return self._refusal(HTTPStatus.NOT_FOUND, "Schema not found", what)
        found = answer if isinstance(answer, dict) else {}
        kind = found.get("schemaType", "AVRO")
        if kind != "AVRO" or found.get("references"):
            what = "refers to others" if kind == "AVRO" else f"is of the type {kind}"
            return Refused(
                f"the schema {number} {what}",
                where=self.url,
                advice="Only Avro schemas that are whole in themselves can be read",
            )
        if not isinstance(text := found.get("schema"), str):
            raise self._stranger(f"the schema {number}")
        return text

    def register(self, subject: str, schema: Any) -> int:
        """The number of *schema*, which is now a version of *subject*, if it was not."""
        path, what = f"/subjects/{quote(subject, safe='')}/versions", f"an id for {subject!r}"
        answer = self._ask(path, what, {"schema": json.dumps(schema)})
        number = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(number, int):
            raise self._stranger(what)
        return number

    def _ask(self, path: str, what: str, body: Any = None, *, absent: int | None = None) -> Any:
        """The answer to a GET, or to a POST of *body*; None if it is the error *absent*."""
        try:
            status, said = self._answer(path, body)
        except (OSError, IncompleteRead) as error:  # a lost connection is also an HTTPException
            reason = getattr(error, "reason", error)
            message = f"the Schema Registry does not answer when asked for {what}: {reason}"
            advice = "Check schema.registry.url, and that it runs"
            raise StoreUnavailable(message, where=self.url, advice=advice) from error
        except HTTPException as error:
            raise self._stranger(what) from error
        if status != HTTPStatus.OK:
            code, text = _told(said)
            if code is not None and code == absent:
                return None
            raise self._refusal(status, text, what)
        try:
            return json.loads(said)
        except ValueError as error:
            raise self._stranger(what) from error

    def _answer(self, path: str, body: Any) -> tuple[int, bytes]:
        """Status and body: an error is an answer, too, and may break off as any other."""
        data = None if body is None else json.dumps(body).encode()
        address = self.url.rstrip("/") + path
        request = Request(address, data, self._headers())  # noqa: S310  the options are checked
        try:
            with urlopen(request, timeout=self.timeout_s) as answer:  # noqa: S310
                return HTTPStatus.OK, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": _CONTENT, "Accept": f"{_CONTENT}, application/json"}
        if self.login:
            headers["Authorization"] = f"Basic {b64encode(self.login.encode()).decode()}"
        return headers

    def _refusal(self, status: int, text: str, what: str) -> LaminaError:
        said = f"the Schema Registry was asked for {what}, and says {status}: {text}"
        if status in _DENIED:
            advice = "Check schema.registry.basic.auth.user.info, 'name:password'"
            return AccessDenied(said, where=self.url, advice=advice)
        if status in _UNFIT:
            advice = "Change the stream's columns by adding some, or the subject's compatibility"
            return Refused(said, where=self.url, advice=advice)
        if status == HTTPStatus.NOT_FOUND:
            advice = "Check schema.registry.url: is it the registry that the producers use?"
            return NotFound(said, where=self.url, advice=advice)
        return StoreUnavailable(said, where=self.url)

    def _stranger(self, what: str) -> Refused:
        message = f"what answers is not a Schema Registry: it was asked for {what}"
        return Refused(message, where=self.url, advice="Check schema.registry.url")


def _told(body: bytes) -> tuple[int | None, str]:
    """The number of an error, and what is said of it."""
    text = body[:200].decode(errors="replace")
    try:
        found = json.loads(body)
    except ValueError:
        return None, text
    if not isinstance(found, dict):
        return None, text
    return found.get("error_code"), str(found.get("message", text))
