"""Proof of vllm.mamba-prefix-cache: which tokens a request continues from when it finds its prefix in the cache.

Real: the scheduler, the cache manager and the config that they are made of, for a hybrid model with three layers of Gated
DeltaNet to one of attention, and MTP. Emulated: the runner and the layers. A layer's state is a chain over the tokens that went
into it, as a recurrence is, and lies in the blocks that the runner keeps it in; a key lies in the slot of its token. Other
tokens give another chain: what a request reads is right, or it is not.
"""

from __future__ import annotations

import hashlib
import random
from contextlib import nullcontext
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.scheduling import Engine

_SCHEDULER, _COORDINATOR = "vllm.v1.core.sched.scheduler", "vllm.v1.core.kv_cache_coordinator"
_CONFIG = "vllm.model_executor.models.config"
_BLOCK, _WORDS = 16, 1 << 30
_DRAFTS, _END = 2, 12
#: Servers, and what is said to them: with room for every prompt in one step; with less; and with few blocks
_IDLE: dict[str, Any] = dict(max_tokens=2048, talk=dict(conversations=4, turns=4, asked=(5, 60), answered=(30, 70)))
_BUSY: dict[str, Any] = dict(max_tokens=40, talk=dict(conversations=32, turns=3, asked=(1, 50), answered=(8, 14)))
_SHORT: dict[str, Any] = dict(
    max_tokens=72, blocks=160, context=800, max_requests=16,
    talk=dict(conversations=24, turns=3, asked=(40, 80), answered=(90, 120)),
)  # fmt: skip


class _Running:
    """A request in the runner: its known tokens, how many of them went into the state, and the state."""

    def __init__(self, tokens: list[int], held: int):
        self.tokens, self.held, self.state = tokens, held, 0


class _Server:
    """The engine, and a runner whose layers say what they read."""

    def __init__(self, engine: Engine, seed: int):
        self.engine, self.draw = engine, random.Random(seed)
        kinds = [type(group.kv_cache_spec).__name__ for group in engine.kv_cache_config.kv_cache_groups]
        self.of_states = [at for at, kind in enumerate(kinds) if kind == "MambaSpec"]
        self.of_attention = [at for at, kind in enumerate(kinds) if kind != "MambaSpec"]
        self.states: dict[tuple[int, int], int] = {}  # (group, block) -> chain
        self.keys: dict[tuple[int, int], int] = {}  # (block, offset) -> chain, of attention's groups alike
        self.requests: dict[str, Any] = {}
        self.running: dict[str, _Running] = {}
        self.seen: list[tuple] = []  # all that was scheduled, and how each cached prefix was
        self.hits = self.wrong = 0

    def words(self, count: int) -> list[int]:
        return [self.draw.randrange(_WORDS) for _ in range(count)]

    def talk(self, conversations: int, turns: int, asked: tuple[int, int], answered: tuple[int, int]) -> None:
        """Conversations at the same time: each turn repeats what was said before, and asks on."""
        left = {self._ask([], asked, answered): turns - 1 for _ in range(conversations)}
        for _ in range(20_000):
            step = self.engine.schedule()
            self.engine.finish(step, self.run(step))
            for request in [request for request in left if request.is_finished()]:
                more = left.pop(request)
                if more:
                    left[self._ask(list(request.all_token_ids), asked, answered)] = more - 1
            if not left:
                return
        raise AssertionError("a request waits for ever")

    def _ask(self, said: list[int], asked: tuple[int, int], answered: tuple[int, int]) -> Any:
        """The prompt ends late in a block: an answer of some tokens fills it, and the next turn finds its state."""
        more = self.draw.randint(*asked)
        more += (_END - len(said) - more) % _BLOCK
        request = self.engine.add(said + self.words(more), self.draw.randint(*answered))
        self.requests[request.request_id] = request
        return request

    def run(self, step: Any) -> dict[str, list[int]]:
        """The tokens that each request gets."""
        cached = step.scheduled_cached_reqs
        starts = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        resumed = getattr(cached, "resumed_req_ids", ())
        starts |= {name: held for name, held in zip(cached.req_ids, cached.num_computed_tokens) if name in resumed}
        for name, held in starts.items():
            self._begin(name, held)
        sampled = {}
        for name, tokens in step.num_scheduled_tokens.items():
            drafts = len(step.scheduled_spec_decode_tokens.get(name, ()))
            sampled[name] = self._compute(name, self.running[name], tokens - drafts, drafts)
            self.seen.append((name, tokens, drafts, len(sampled[name])))
        return sampled

    def _begin(self, name: str, held: int) -> None:
        """A request begins behind a cached prefix: with the state of its last block, and the keys of all of them."""
        running = self.running[name] = _Running(list(self.requests[name].all_token_ids), held)
        if not held:
            return
        right = _chain(0, running.tokens[:held])
        tables = self._tables(name)
        states = [self.states.get((group, tables[group][held // _BLOCK - 1])) for group in self.of_states]
        running.state = states[0] or 0
        keys = [
            self.keys.get((table[at // _BLOCK], at % _BLOCK)) for table in map(tables.__getitem__, self.of_attention)
            for at in range(held)
        ]  # fmt: skip
        expected = _chains(0, running.tokens[:held]) * len(self.of_attention)
        self.hits += 1
        self.wrong += states != [right] * len(states) or keys != expected
        self.seen.append((name, held, states, hash(tuple(keys))))

    def _compute(self, name: str, running: _Running, tokens: int, drafts: int) -> list[int]:
        """Known tokens, and drafts behind them. As the runner does in mode "align": the state behind the known tokens is in the
        block of the last token that was scheduled, and in a block that accepted drafts have filled is that of its end."""
        begin, known = running.held, running.held + tokens
        accepted = self.draw.randint(0, drafts)
        sampled = self.words(1 + accepted) if known == len(running.tokens) else []
        running.tokens += sampled
        after = _chains(running.state, running.tokens[begin : known + accepted])
        running.held, running.state = known + accepted, after[-1]
        tables = self._tables(name)
        filled = running.held // _BLOCK * _BLOCK
        for group in self.of_states:
            self.states[group, tables[group][(known + drafts - 1) // _BLOCK]] = after[tokens - 1]
            if filled >= known:
                self.states[group, tables[group][filled // _BLOCK - 1]] = after[filled - begin - 1]
        for group in self.of_attention:
            for at, key in enumerate(after, begin):
                self.keys[tables[group][at // _BLOCK], at % _BLOCK] = key
        return sampled

    def _tables(self, name: str) -> Any:
        return self.engine.scheduler.kv_cache_manager.get_block_ids(name)

    def observe(self) -> Observation:
        bits = hashlib.sha256(repr(self.seen).encode()).hexdigest()
        return Observation(self.wrong / max(self.hits, 1), bits)


def _chain(state: int, tokens: list[int]) -> int:
    return _chains(state, tokens)[-1]


def _chains(state: int, tokens: list[int]) -> list[int]:
    """The state after each of the tokens."""
    after = []
    for token in tokens:
        state = hash((state, token))
        after.append(state)
    return after


class Proof(proof.Proof):
    modules = (_SCHEDULER, _COORDINATOR, _CONFIG)
    measure = "share of cached prefixes that are of other tokens or not there"

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def prepare(self) -> None:
        if not hasattr(self.engine[_SCHEDULER].Scheduler, "_mamba_block_aligned_split"):
            raise NoSuchPath("states of recurrent layers are not cached at the ends of chunks")
        # Up to 0.16.0 the config refuses drafts beside cached states: a prompt is cut wrongly after a preemption alone
        hybrids: Any = self.engine[_CONFIG].MambaModelConfig
        refused = any("not compatible" in str(text) for text in code_of(hybrids.verify_and_update_config.__func__).co_consts)
        self.drafts = 0 if refused else _DRAFTS

    def scenario(self, seed: int) -> Observation:
        """Conversations in a server that has time, in one whose steps are full, and in one whose blocks do not last."""
        return combine(*(self._talk(seed, self.drafts, **server) for server in (_IDLE, _BUSY, _SHORT)))

    def control(self, seed: int) -> Observation:
        return combine(*(self._talk(seed, 0, **server) for server in (_IDLE, _BUSY)))

    def _talk(self, seed: int, drafts: int, talk: dict, **how: Any) -> Observation:
        with Engine(drafts=drafts, page_size=_BLOCK, **how) as engine:
            server = _Server(engine, seed)
            server.talk(**talk)
            return server.observe()

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.left_in_block
        broken = {
            "no chunk is shortened": replaced(wrap, "left_in_block", lambda start, size: 0),
            "a chunk ends before the block does": replaced(wrap, "left_in_block", lambda start, size: real(start, size) - 1),
        }
        finder = self.engine[_COORDINATOR].HybridKVCacheCoordinator.find_longest_cache_hit
        if self.drafts and {"eagle_verified"} <= {*code_of(finder).co_varnames} and "MambaSpec" not in code_of(finder).co_names:
            broken |= {  # 0.20.0-0.25.1
                "what attention holds is not asked": replaced(wrap, "attention_holds", lambda instance, blocks, tokens: True),
                "states keep their margin": replaced(wrap, "without_margin", lambda instance, found: nullcontext()),
            }
        return broken
