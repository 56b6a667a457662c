"""Check that calls which overlapped in time had the effects of the same calls one after the other."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

State: TypeAlias = Hashable


@dataclass(frozen=True, slots=True)
class Call:
    """A call and what it did.

    Attributes:
        name: what was called and what it returned, for messages.
        invoked: when it began, in seconds.
        returned: when its result was received; infinite without one: then it may have had its effect or not.
        apply: returns the states in which it can leave a state, given its result; none if that result contradicts it.
    """

    name: str
    invoked: float
    returned: float
    apply: Callable[[State], Iterable[State]]


def is_linearizable(calls: Sequence[Call], initial: State) -> bool:
    """Return whether there is an order of the calls, each between its begin and end, that explains all results.

    Wing and Gong's search, with Lowe's cache of visited configurations. Its cost grows with the number of calls that
    overlap, so check the calls of each independent object by themselves.
    """
    required = sum(1 << index for index, call in enumerate(calls) if call.returned < math.inf)
    configurations: list[tuple[int, State]] = [(0, initial)]
    seen = set(configurations)
    while configurations:
        done, state = configurations.pop()
        if done & required == required:
            return True
        left = [(index, call) for index, call in enumerate(calls) if not done >> index & 1]
        horizon = min(call.returned for _, call in left)
        for index, call in left:
            if call.invoked > horizon:  # another call returned before this one began
                continue
            following = {(done | 1 << index, after) for after in call.apply(state)} - seen
            seen |= following
            configurations.extend(following)
    return False
