"""Who acts, what was done, and what each knows of the others."""

from __future__ import annotations

from dataclasses import dataclass

#: Number of an actor -> how many of its operations are known to be complete
Clock = dict[int, int]


def join(clock: Clock, other: Clock) -> None:
    """Add to `clock` what `other` knows."""
    for actor, tick in other.items():
        if clock.get(actor, 0) < tick:
            clock[actor] = tick


class Actor:
    """A stream or a thread of the host: its operations are in order."""

    def __init__(self, number: int, name: str, host: bool):
        self.number, self.name, self.host = number, name, host
        self.clock: Clock = {}

    def step(self) -> int:
        """Begin its next operation: the number of that operation, from 1 on."""
        tick = self.clock[self.number] = self.clock.get(self.number, 0) + 1
        return tick


@dataclass(frozen=True)
class Operation:
    """An operation: who did it, its number there, its name, and the line of the engine that it comes from."""

    actor: Actor
    tick: int
    what: str
    where: str

    def before(self, clock: Clock) -> bool:
        """Whether one that has this clock is behind the operation."""
        return self.tick <= clock.get(self.actor.number, 0)

    def __str__(self) -> str:
        return f"{self.what} on {self.actor.name} at {self.where}"


@dataclass
class Race:
    """Two operations on the same memory that nothing orders.

    kind: "read after write", "write after read", "write after write"; "read of nothing": `second` reads what its owner has not
    written, `first` handed it over; "use after free": the memory of `first` may be another's from `second` on.
    memory: name of the storage. missing: the wait that is not there. count: how often these two lines met.
    """

    kind: str
    first: Operation
    second: Operation
    memory: str
    missing: str
    count: int = 1

    def __str__(self) -> str:
        often = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.kind} in {self.memory}{often}: {self.second}, not ordered behind {self.first}; {self.missing}"
