"""How rows flow through a pipeline, as `lamina check` draws it: from sinks back to sources."""

from __future__ import annotations

from collections.abc import Iterator

from lamina.cli.support.shapes import Shape


def flow(plan: Shape) -> Iterator[str]:
    """One tree for each stream that has sinks; what several read is drawn once."""
    steps = {step["name"].lower(): step for step in plan["streams"]}
    sinks: dict[str, list[str]] = {}
    for sink in plan["sinks"]:
        sinks.setdefault(sink["stream"].lower(), []).append(sink["name"])
    drawn: set[str] = set()
    for stream, names in sinks.items():
        yield ", ".join(names)
        yield from _branch(steps, stream, drawn, indent="")


def _branch(steps: dict[str, Shape], name: str, drawn: set[str], indent: str) -> Iterator[str]:
    step = steps.get(name.lower())
    if step is None:
        yield f"{indent}└─ source {name}"
        return
    is_known = step["name"] in drawn
    yield f"{indent}└─ {step['name']}: {'as above' if is_known else _said(step)}"
    if is_known:
        return
    drawn.add(step["name"])
    *others, last = step["inputs"]
    for each in others:
        for line in _branch(steps, each, drawn, ""):
            yield f"{indent}   {'├' if line.startswith('└') else '│'}{line[1:]}"
    yield from _branch(steps, last, drawn, f"{indent}   ")


def _said(step: Shape) -> str:
    """What it does, and what that costs in every epoch."""
    if step["kind"] == "stateless":
        return "row by row, inside of what reads it" if step["block_of"] else "row by row; a job"
    if step["kind"] == "distinct":
        return "distinct rows; a job, with state"
    by = " ".join(", ".join(step["keys"]).split())
    if step["kind"].endswith("with a table"):
        return f"{step['kind']}{f' on {by}' if by else ''}, inside of what reads it"
    return f"{step['kind']}{f' by {by}' if by else ', one group'}; a job, with state"
