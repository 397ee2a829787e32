"""A Schema Registry, as Confluent's API has it: one schema in, its number out."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from lamina.errors import AccessDenied, LaminaError, NotFound, Refused, StoreUnavailable

_CONTENT = "application/vnd.schemaregistry.v1+json"
_INCOMPATIBLE, _INVALID = 409, 422


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """At *url*; *user* is `name:password`, if it wants one."""

    url: str
    timeout_s: float
    user: str = field(default="", repr=False)

    def check(self) -> None:
        """Raises if it does not answer, or not to us."""
        self._ask("GET", "/config")

    def register(self, subject: str, schema: Any) -> int:
        """The number of *schema*, which is now a version of *subject*, if it was not."""
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        answer = self._ask("POST", path, {"schema": json.dumps(schema)})
        number = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(number, int):
            message = f"the Schema Registry gave no id for the subject {subject!r}"
            raise StoreUnavailable(message, where=self.url)
        return number

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310  the scheme is checked with the options
            self.url.rstrip("/") + path, data, self._headers(), method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:  # noqa: S310
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code, _message(error.read())) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            message = f"the Schema Registry does not answer: {reason}"
            advice = "Check schema.registry.url, and that it runs"
            raise StoreUnavailable(message, where=self.url, advice=advice) from error

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": _CONTENT, "Accept": f"{_CONTENT}, application/json"}
        if self.user:
            token = base64.b64encode(self.user.encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        return headers

    def _refusal(self, status: int, text: str) -> LaminaError:
        said = f"the Schema Registry says {status}: {text}"
        if status in (401, 403):
            advice = "Check schema.registry.basic.auth.user.info"
            return AccessDenied(said, where=self.url, advice=advice)
        if status in (_INCOMPATIBLE, _INVALID):
            advice = "Change the stream's columns by adding some, or the subject's compatibility"
            return Refused(said, where=self.url, advice=advice)
        if status == 404:
            return NotFound(said, where=self.url, advice="Check schema.registry.url")
        return StoreUnavailable(said, where=self.url)


def _message(body: bytes) -> str:
    try:
        found = json.loads(body)
        return str(found["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
