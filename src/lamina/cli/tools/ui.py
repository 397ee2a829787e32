"""`lamina ui`: pipelines, checkpoints, state and logs as a page in the browser."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.target import option_option
from lamina.errors import UsageError

INSTALL = "pip install 'lamina[console]'"
NEEDED = ("starlette", "uvicorn", "jinja2")


@click.command("ui")
@click.argument("pipelines", metavar="[PIPELINE.sql ...]", nargs=-1)
@click.option(
    "--home",
    "homes",
    metavar="PATH|URL",
    multiple=True,
    help="Home of a pipeline: a folder, or an address in an object store; may be repeated.",
)
@click.option(
    "--store",
    "stores",
    metavar="URL",
    multiple=True,
    help="Store of checkpoints: a folder or a URL; may be repeated. With one --home: its store.",
)
@click.option("--base", metavar="PATH", default="", help="The pipeline's folder within the store.")
@option_option("--option")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; any but this machine's own asks for a token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; default: 8650, or a free one if that is taken.",
)
@click.option(
    "--token",
    envvar="LAMINA_UI_TOKEN",
    show_envvar=True,
    default="",
    help="The token to ask for; default: a new one, if one is needed.",
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let people stop pipelines, ask for checkpoints and name savepoints from the page.",
)
@json_option
def ui_command(
    *,
    pipelines: tuple[str, ...],
    homes: tuple[str, ...],
    stores: tuple[str, ...],
    base: str,
    option: Mapping[str, Any],
    host: str,
    port: int | None,
    token: str,
    allow_actions: bool,
    screen: Screen,
) -> None:
    """Show pipelines as a page in the browser.

    Everything is read from files and stores alone, so it works whether or not the pipelines run.
    Without arguments: the pipelines of this folder. Claims and changes nothing, unless
    --allow-actions is given. Ends with Ctrl-C.
    """
    _require(*NEEDED)
    from lamina.console.serving import address_of, serve  # noqa: PLC0415  an extra
    from lamina.console.settings import Access  # noqa: PLC0415
    from lamina.console.subjects import find_subjects  # noqa: PLC0415

    subjects = find_subjects(pipelines, homes, stores, base=base, options=option)

    def tell(access: Access) -> None:
        address = address_of(access)
        if screen.as_json:
            shown = [{"key": each.key, "name": each.name} for each in subjects]
            screen.json({"url": address, "pipelines": shown})
        else:
            screen.line(f"Lamina shows {', '.join(each.name for each in subjects)} at {address}")
            screen.line("Press Ctrl-C to end it")

    access = Access(host=host, token=token, allow_actions=allow_actions)
    serve(subjects, access, port=port, told=tell)


def _require(*packages: str) -> None:
    for name in packages:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise UsageError(
                f"the page needs {name}, which is not installed", advice=INSTALL
            ) from None
