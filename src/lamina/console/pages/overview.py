"""All pipelines at a glance."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lamina.console.context import Console
from lamina.console.render import Pages, address
from lamina.console.views.glance import Health, glance_of


def routes(console: Console, pages: Pages) -> list[BaseRoute]:
    def overview(request: Request) -> Response:
        if len(console.pipelines) == 1 and "all" not in request.query_params:
            return RedirectResponse(address("p", next(iter(console.pipelines))), 303)
        glances = [glance_of(each.look()) for each in console.pipelines.values()]
        counts = {health: sum(g.health is health for g in glances) for health in Health}
        return pages.page(
            "overview.html", title="Pipelines", glances=glances, counts=counts, live=True
        )

    return [Route("/", overview)]
