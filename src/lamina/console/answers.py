"""From errors to pages, from forms to fields: what all pages share."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lamina.errors import Corrupt, LaminaError, NotFound, Refused, StoreError, UsageError

FORM_BYTES_MAX = 64 * 1024
FORM_TOKEN = "form_token"  # noqa: S105  the name of a field

STATUSES: Mapping[type[LaminaError], HTTPStatus] = {
    UsageError: HTTPStatus.BAD_REQUEST,
    NotFound: HTTPStatus.NOT_FOUND,
    Refused: HTTPStatus.CONFLICT,
    Corrupt: HTTPStatus.CONFLICT,
    StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""A class that is not here has the status of its nearest ancestor that is."""


def status_of(error: LaminaError) -> HTTPStatus:
    known = (STATUSES[each] for each in type(error).__mro__ if each in STATUSES)
    return next(known, HTTPStatus.CONFLICT)


async def read_form(request: Request, token: str) -> dict[str, str]:
    """The fields of a form of ours; Refused if it is not one."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > FORM_BYTES_MAX:
            raise UsageError("the form is too long")
    fields = dict(parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True))
    given = fields.pop(FORM_TOKEN, "")
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise Refused(
            "this form is not from this page, or from before it was started again",
            advice="Load the page again, then repeat what you wanted to do",
        )
    return fields


def see(target: str) -> Response:
    """After a form: look at what came of it."""
    return RedirectResponse(target, HTTPStatus.SEE_OTHER)
