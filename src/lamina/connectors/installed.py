"""Whether the packages are here that a kind of source, table or sink needs."""

from __future__ import annotations

from importlib.util import find_spec

from lamina.connectors.options import Declared, Kind
from lamina.pipeline.tokens import bad_at


def check_installed(of: Declared, kind: Kind, file: str) -> None:
    """BadPipeline if the packages of a kind are not here; nothing is imported."""
    if kind.extra is None:
        return
    for module in kind.extra.modules:
        if not _is_installed(module):
            advice = f"pip install 'lamina[{kind.extra.name}]'"
            message = f"{of.name!r} needs the Python package {module}, which is not installed"
            raise bad_at(message, file, of.place, advice)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
