"""Options of an address: which server, and credentials. What is not given is the environment's."""

from __future__ import annotations

from typing import Any

from lamina.connectors.kinds import DeclaredOption, Given, OptionType
from lamina.connectors.options import Declared, bad_option, option_of
from lamina.pipeline.model import DeclaredSource, Option
from lamina.store.address import Address

_S3, _GS, _AZ = ("s3",), ("gs",), ("az", "abfs", "abfss")
_SCHEMES = {
    "endpoint": (*_S3, *_AZ),
    "region": _S3,
    "access_key_id": _S3,
    "secret_access_key": _S3,
    "session_token": _S3,
    "account_name": _AZ,
    "account_key": _AZ,
    "service_account_key": _GS,
}

STORE_OPTIONS = (
    DeclaredOption("endpoint", "Of `s3://` and `az://`: another server than the cloud's own"),
    DeclaredOption("region", "Of `s3://`"),
    DeclaredOption("access_key_id", "Of `s3://`", OptionType.SECRET),
    DeclaredOption("secret_access_key", "Of `s3://`", OptionType.SECRET),
    DeclaredOption("session_token", "Of `s3://`", OptionType.SECRET),
    DeclaredOption("account_name", "Of `az://`"),
    DeclaredOption("account_key", "Of `az://`", OptionType.SECRET),
    DeclaredOption("service_account_key", "Of `gs://`, the JSON itself", OptionType.SECRET),
)


def check_store_options(of: Declared, given: Given, place: str) -> None:
    """BadPipeline at the first that the address *place* has no use for; so has any folder."""
    where = given.place(place)
    scheme = Address.parse(where).scheme if isinstance(where, str) else ""
    for name, schemes in _SCHEMES.items():
        if name in given.declared and scheme not in schemes:
            what = f"an address of {scheme}://" if scheme else "a folder of this machine"
            message = f"has the option {name!r}, and its {place} is {what}"
            known = ", ".join(f"{each}://" for each in schemes)
            raise bad_option(of, message, given.file, f"It is an option of {known}; leave it out")
    if "endpoint" in given.declared:
        _check_endpoint(of, given)


def _check_endpoint(of: Declared, given: Given) -> None:
    if not given.text("endpoint").lower().startswith(("http://", "https://")):
        option = option_of(of, "endpoint")
        written = option.written if option else ""
        advice = "It begins with http:// or https://"
        raise bad_option(of, f"has the endpoint {written!r}", given.file, advice)


def shared_options(of: DeclaredSource, place: str, other: str) -> dict[str, Option]:
    """The options of the address *place* that count for the address *other* of the source, too.

    Both are then in stores of one kind; for any other store there is the environment.
    """
    places = (option_of(of, place), option_of(of, other))
    schemes = {option.value.partition("://")[0].lower() if option else "" for option in places}
    if not any(schemes <= set(kind) for kind in (_S3, _GS, _AZ)):
        return {}
    found = {name: option_of(of, name) for name in _SCHEMES}
    return {name: option for name, option in found.items() if option is not None}


def store_options(given: Given) -> dict[str, Any]:
    """As lamina.store takes them. They may hold secrets."""
    found: dict[str, Any] = {name: given.text(name) for name in _SCHEMES if name in given.declared}
    if str(found.get("endpoint", "")).lower().startswith("http://"):
        found["client_options"] = {"allow_http": True}
    return found
