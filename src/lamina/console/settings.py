"""How the page is served, as data."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

HOST = "127.0.0.1"
PORT = 8650  # if it is free; 0 is any that is
TOKEN_CHARACTERS_MIN = 16


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask, and for what."""

    host: str = HOST
    port: int = 0
    token: str = ""  # empty: none is needed
    allow_actions: bool = False

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
