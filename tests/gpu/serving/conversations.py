"""What cases ask: generators of (scenario, answer), or of (scenario, (right answer, answer)) where a server is compared with
itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.gpu.serving.child import IMAGE, VISION_END, VISION_START
from tests.gpu.serving.models import VOCABULARY
from tests.gpu.serving.processes import Server

Conversation = Iterator[tuple[str, Any]]


def tokens(draw: random.Random, count: int) -> list[int]:
    """A prompt."""
    return [draw.randrange(2, VOCABULARY) for _ in range(count)]


def image(side: int) -> list[int]:
    """What a prompt has of a square image: side * side tokens, what begins it and what ends it."""
    return [VISION_START, *[IMAGE] * side**2, VISION_END]


def prompts(seed: int, scenarios: Mapping[str, Sequence[int]], times: int = 1) -> list[tuple[str, list[int]]]:
    """(scenario, prompt) of each length of each scenario, so many times."""
    draw = random.Random(seed)
    return [(what, tokens(draw, count)) for what, lengths in scenarios.items() for count in lengths for _ in range(times)]


def alone(seed: int, scenarios: Mapping[str, Sequence[int]], times: int = 1, **how: Any) -> Callable[[Server], Conversation]:
    """Each prompt by itself, with nothing cached. The answers hold their prompts, too."""

    def ask(server: Server) -> Conversation:
        for what, prompt in prompts(seed, scenarios, times):
            server.forget()
            yield what, server.answer(prompt, **how) | {"prompt": prompt}

    return ask


def cold_and_cached(seed: int, scenarios: Mapping[str, Sequence[int]], times: int) -> Callable[[Server], Conversation]:
    """Each prompt with nothing cached, and with its first half cached."""

    def ask(server: Server) -> Conversation:
        for what, prompt in prompts(seed, scenarios, times):
            server.forget()
            yield f"cold, {what}".rstrip(", "), server.answer(prompt) | {"prompt": prompt}
            server.forget()
            server.answer(prompt[: len(prompt) // 2])
            answer = server.answer(prompt)
            server.expect(answer["cached"] >= len(prompt) // 2 - 1, f"half of {len(prompt)} tokens was not cached")
            yield f"cached, {what}".rstrip(", "), answer | {"prompt": prompt}

    return ask


@dataclass(frozen=True)
class Talk:
    """Conversations of several turns, all at once, whose earlier turns are cached.

    What a turn was answered with is compared with what the same prompt is answered with alone and with nothing cached. Where
    that differs by more than rounding, the request continued from what is not the state, or are not the keys, of its prompt.

    first, answer: tokens of each conversation's first prompt and of its answers; more: of what is said then."""

    first: tuple[int, ...]
    answer: tuple[int, ...]
    more: int
    turns: int
    seed: int = 24

    def __call__(self, server: Server) -> Conversation:
        draw = random.Random(self.seed)
        said, asked = [tokens(draw, count) for count in self.first], []
        server.forget()
        for _ in range(self.turns):
            found = server.answers(said, new_tokens=list(self.answer))
            asked += list(zip(said, found))
            said = [prompt + one["tokens"] + tokens(draw, self.more) for prompt, one in zip(said, found)]
        server.expect(any(one["cached"] for _, one in asked), "no turn found an earlier one in the cache")
        for prompt, one in asked:
            server.forget()
            yield "cached turns" if one["cached"] else "others", (server.answer(prompt, new_tokens=1), one)
