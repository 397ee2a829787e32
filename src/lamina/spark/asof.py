"""What an ASOF join asks: which row of the right side a row of the left side gets, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamina.engine.asof import Asof
from lamina.errors import BadPipeline
from lamina.pipeline.join_conditions import RIGHT, Condition, Conditions, Relation
from lamina.pipeline.model import AsofOf, JoinOf
from lamina.pipeline.select import quoted
from lamina.pipeline.tokens import bad_at, read_script

Sides = tuple[Sequence[Relation], Sequence[Relation]]
Bad = Callable[[str, str], BadPipeline]
_AHEAD = (
    "Write STATE TTL INTERVAL 1 HOUR behind the SELECT: then a row waits for so long, and a later "
    "one is not for it. Or look back, with >= or >"
)


def read_match(of: JoinOf, asof: AsofOf, sides: Sides, file: str) -> Condition:
    """The one comparison of event times that says which row is chosen, as a bound."""
    text, place = asof.match or of.on, asof.place
    if asof.as_of:
        text = f"{asof.as_of} >= {_time_of(sides[RIGHT], file, asof)}"
    script = read_script(text, file, place)
    found = Conditions(script, sides).read(script.words)
    is_more = bool(found.keys or found.pairs or any(found.sides)) and text is not of.on
    if is_more or (found.low is None) == (found.high is None):
        left, right = (_listed(side) for side in sides)
        said = f"FOR SYSTEM_TIME AS OF {asof.as_of}" if asof.as_of else text
        raise bad_at(
            f"{said or 'this ASOF JOIN'} is not one comparison of the event times of both sides, "
            f"{left} and {right}",
            file,
            place,
            f"Write MATCH_CONDITION ({left} >= {right}) for the newest row at that time",
        )
    return found


def asof_step(of: JoinOf, match: Condition, condition: Condition, bad: Bad) -> Asof:
    """*condition* has the bounds of ON: a row that is not within them is not chosen."""
    low, high = condition.bounded(match.low, match.high)
    looks_ahead = match.low is not None
    if of.ttl_us is not None:
        low, high = Condition(low=low, high=high).bounded(
            *((None, of.ttl_us) if looks_ahead else (-of.ttl_us, None))
        )
    if high is None:
        message = "an ASOF JOIN that looks ahead: the next row of a key may never come"
        raise bad(message, _AHEAD)
    if low is not None and low > high:
        raise bad("no row meets the bounds of this join", "See its ON and MATCH_CONDITION")
    return Asof(of.kind, low, high, (), 0, looks_ahead)


def without_times(relations: Sequence[Relation]) -> list[Relation]:
    """Versions may be as old as they like: windows and joins cannot go by their time."""
    return [Relation(each.alias, each.columns) for each in relations]


def _time_of(relations: Sequence[Relation], file: str, asof: AsofOf) -> str:
    found = [f"{quoted(r.alias)}.{quoted(time)}" for r in relations for time in sorted(r.times)]
    if len(found) != 1:
        which = "no event time" if not found else "several event times"
        message = f"FOR SYSTEM_TIME AS OF: the right side has {which}"
        raise bad_at(
            message, file, asof.place, "Write ASOF JOIN with MATCH_CONDITION (x.ts >= y.ts)"
        )
    return found[0]


def _listed(relations: Sequence[Relation]) -> str:
    times = [f"{each.alias}.{time}" for each in relations for time in sorted(each.times)]
    return " or ".join(times) or "which it has none of"
