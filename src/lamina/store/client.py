"""A client of obstore: from an address and options, and from what it raises to our errors.

What is not given comes from the usual environment variables, as obstore reads them, and from the
profiles of AWS, which it does not read (profile.py).
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, TypeAlias

from obstore.store import AzureStore, GCSStore, S3Store

from lamina.errors import LaminaError, UsageError
from lamina.store.address import Address
from lamina.store.causes import OBSTORE_ERRORS, Doing, from_obstore
from lamina.store.profile import ProfileCredentials, profile_credentials

Client: TypeAlias = S3Store | GCSStore | AzureStore

NO_RETRIES = {"max_retries": 0, "retry_timeout": timedelta(seconds=60)}
_REGIONS = ("region", "aws_region", "default_region")
_REGION_NAMES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TOKEN_NAMES = ("AWS_SESSION_TOKEN", "AWS_TOKEN")
_CLASSES: dict[str, type[S3Store] | type[GCSStore] | type[AzureStore]] = {
    "s3": S3Store,
    "gs": GCSStore,
    "az": AzureStore,
    "abfs": AzureStore,
    "abfss": AzureStore,
}


def connect(address: Address, options: dict[str, Any], retry: Any = NO_RETRIES) -> Client:
    """A client of obstore; *retry* is what it tries again by itself."""
    settings = {**address.options, **options, "prefix": address.prefix or None}
    _check_endpoint(settings, address)
    if address.scheme == "s3":
        _add_profile(settings)
    try:
        return _CLASSES[address.scheme](address.bucket, retry_config=retry, **settings)
    except (*OBSTORE_ERRORS, TypeError) as error:
        raise _bad_option(error, address, options) from None


def failed(client: Client, error: Exception, where: str, doing: Doing) -> LaminaError:
    """The error of our tree for what a call of *client* raised."""
    provider: Any = client.credential_provider
    if isinstance(provider, ProfileCredentials) and provider.failure is not None:
        return provider.failure
    given: Any = client.config
    has_token = "session_token" in given or any(map(os.environ.get, _TOKEN_NAMES))
    return from_obstore(error, where, doing, is_fixed=provider is None and has_token)


def _add_profile(settings: dict[str, Any]) -> None:
    """The credentials and the region of an AWS profile, where nothing else is given."""
    provider = profile_credentials(settings.pop("profile", ""), settings)
    if provider is not None:
        settings["credential_provider"] = provider
        given = any(each in settings for each in _REGIONS) or any(
            map(os.environ.get, _REGION_NAMES)
        )
        if provider.region and not given:
            settings["region"] = provider.region


def _check_endpoint(settings: dict[str, Any], address: Address) -> None:
    """Without a scheme the client breaks down at the first request."""
    named = settings.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "http://")
    if not str(named).lower().startswith(("http://", "https://")):
        raise UsageError(
            "the endpoint begins with http:// or https://",
            where=address.url,
            advice="Correct the option endpoint, or the variable AWS_ENDPOINT_URL",
        )


def _bad_option(error: Exception, address: Address, options: dict[str, Any]) -> LaminaError:
    """Names only: the value of an option may be a secret."""
    text = str(error).partition("\n")[0]
    unknown = [name for name in options if f"'{name}'" in text and "not valid" in text]
    given = ", ".join(sorted(options)) or "none"
    if unknown:
        message = f"a store of {address.scheme}:// has no option {unknown[0]!r}"
    elif "must be specified" in text:
        message = f"an option is missing: {text.rpartition(': ')[2]}"
    else:
        message = f"an option has a value that the store client refuses; given are: {given}"
    return UsageError(message, where=address.url)
