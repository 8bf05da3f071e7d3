"""Prompts in chunks, where layers of Mamba2 store checkpoints of their states between them: 0.32.0-0.33.0.

Real: the config, the scheduler and its cache manager, the spec of Mamba2's layers, the builder of their metadata, and the
Triton kernel that stores checkpoints, interpreted. Played: the model runner, whose rows of blocks get what the scheduler sends,
as those of both runners do. Emulated: a layer, which convolves over four tokens and decays, stores its window before the
checkpoint and its state behind it, as MambaMixer2 does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from attnfix.patches.lab import interpreter
from attnfix.patches.lab.proof import Observation, combine, device, observe

from .models import NEMOTRON_H
from .scheduling import Engine, Served

_MAMBA = "vllm.model_executor.layers.mamba"
STORE, MIXER, _BESIDE = f"{_MAMBA}.ops.ssd_checkpoint", f"{_MAMBA}.mamba_mixer2", f"{_MAMBA}.checkpoint"
_BUILDER = "vllm.v1.attention.backends.mamba2_attn"
#: Tokens of a block of states; channels; tokens before one that its convolution sees
BLOCK, _WIDTH, _TAPS = 16, 8, 3
_DECAY = 0.9
#: Steps that take two blocks of a prompt
_LAUNCH: dict[str, Any] = dict(
    model=NEMOTRON_H, blocks=256, max_tokens=2 * BLOCK + 8, context=512, state_layer=f"{MIXER}:MambaMixer2"
)


def launch(drafts: int, interval: int | None = 0, **more: Any) -> dict[str, Any]:
    """Of an `Engine`. interval: of states that are kept for other requests, 0 for that behind the prompt, None for all."""
    cache = {"mamba_cache_mode": "align", "prefix_cache_retention_interval": interval}
    return dict(_LAUNCH, drafts=drafts, cache=cache, **more)


class Checkpointing:
    """An engine whose steps take two blocks of a prompt, and the layer's states."""

    def __init__(self, engine: Engine, seed: int):
        import torch

        self.engine, self.draw = engine, random.Random(seed)
        groups = engine.kv_cache_config.kv_cache_groups
        self.group, spec = next(
            (at, group.kv_cache_spec) for at, group in enumerate(groups) if type(group.kv_cache_spec).__name__ == "MambaSpec"
        )
        names = list(groups[self.group].layer_names)
        self.builder = import_module(_BUILDER).Mamba2AttentionMetadataBuilder(spec, names, engine.config, torch.device("cpu"))
        self.store = import_module(STORE).store_prefill_checkpoint
        count, self.size = engine.kv_cache_config.num_blocks, spec.block_size
        # Blocks hold what others left; the null block holds zeros
        self.windows = torch.full((count, _WIDTH, _TAPS + engine.drafts), 7.0).to(device())
        self.states = torch.full((count, _WIDTH), 7.0).to(device())
        self.windows[0] = self.states[0] = 0
        made = torch.Generator().manual_seed(seed)
        self.features = torch.randn(128, _WIDTH, generator=made).to(device())
        self.rows: dict[str, list[int]] = {}
        self.computed: dict[str, int] = {}
        self.known: dict[str, list[int]] = {}
        self.got: dict[str, list[Any]] = {}
        self.hits = self.planned = 0

    def ask(self, prompts: Sequence[list[int]]) -> None:
        """All at once, each for one token."""
        asked = [self.engine.add(prompt, output=1) for prompt in prompts]
        self.known |= {request.request_id: prompt for request, prompt in zip(asked, prompts)}
        while any(not request.is_finished() for request in asked):
            self._step()

    def words(self, count: int) -> list[int]:
        return [self.draw.randrange(3, 128) for _ in range(count)]

    def _step(self) -> None:
        step = self.engine.schedule()
        for new in step.scheduled_new_reqs:
            self.rows[new.req_id] = list(new.block_ids[self.group])
            self.computed[new.req_id] = new.num_computed_tokens
            self.got[new.req_id] = []
            self.hits += new.num_computed_tokens > 0
        going = step.scheduled_cached_reqs
        for name, blocks in zip(going.req_ids, going.new_block_ids):
            if blocks is not None:
                self.rows[name] += blocks[self.group]
        for source, target in getattr(step, "kv_cache_block_copies", None) or ():
            self._copy(source, target)
        names = list(step.num_scheduled_tokens)
        if names:
            self._compute(names, [step.num_scheduled_tokens[name] for name in names])
        done = [name for name in names if self.computed[name] == len(self.known[name])]
        self.engine.finish(step, {name: [5] for name in done})

    def _copy(self, source: int, target: int) -> None:
        self.windows[target], self.states[target] = self.windows[source].clone(), self.states[source].clone()

    def _compute(self, names: list[str], new: list[int]) -> None:
        import torch

        before = [self.computed[name] for name in names]
        for name, begin, count in zip(names, before, new):  # a step begins in the block in which it ends
            columns = (begin - 1) // self.size, (begin + count - 1) // self.size
            if begin and columns[0] != columns[1]:
                self._copy(*(self.rows[name][column] for column in columns))
        width = self.engine.config.model_config.max_model_len // self.size + self.engine.drafts
        tables = [(self.rows[name] + [0] * width)[:width] for name in names]
        batch = self.engine.worker.batch(
            context=before, new=new, block_table_tensor=torch.tensor(tables, dtype=torch.int32),
            is_prefilling=torch.ones(len(names), dtype=torch.bool),
        )  # fmt: skip
        metadata = self.builder.build(common_prefix_len=0, common_attn_metadata=batch)
        assert metadata.num_prefills == len(names), "each chunk has two tokens or more"
        tokens = [self.known[name][begin : begin + count] for name, begin, count in zip(names, before, new)]
        for name, count, states in zip(names, new, self._layer(metadata, tokens)):
            self.got[name] += states
            self.computed[name] += count

    def _layer(self, metadata: Any, tokens: list[list[int]]) -> list[list[Any]]:
        """The state behind each token of each request."""
        import torch

        blocks, found = metadata.state_indices_tensor_p.tolist(), []
        x = torch.cat([self.features[row] for row in tokens])
        for row, block, goes_on in zip(tokens, blocks, metadata.has_initial_states_p.tolist()):
            window = self.windows[block, :, :_TAPS].T if goes_on else self.features.new_zeros(_TAPS, _WIDTH)
            state = self.states[block] if goes_on else self.features.new_zeros(_WIDTH)
            seen = torch.cat([window, self.features[row]])
            found.append(_states(seen, state))
            self.windows[block, :, :_TAPS] = seen[-_TAPS:].T
        if metadata.checkpoint_chunk_idx is not None:
            self.planned += 1
            every, ends = [state for row in found for state in row], metadata.cu_chunk_seqlen_p.tolist()[1:]
            plan = metadata.checkpoint_meta
            on_device = {name: getattr(plan, name).to(device()) for name in ("checkpoint_offsets", "state_indices")}
            self.store(
                replace(plan, **on_device), metadata.checkpoint_chunk_idx.to(device()), x.T, self.windows,
                torch.stack([every[end - 1] for end in ends]), self.states, metadata.query_start_loc_p.to(device()),
                state_len=_TAPS,
            )  # fmt: skip
        for block, states in zip(blocks, found):
            self.states[block] = states[-1]
        return found

    def observe(self) -> Observation:
        """States behind all tokens that were computed, against those of whole prompts; and the null block, beside a one."""
        import torch

        right = []
        for name, prompt in self.known.items():
            seen = torch.cat([self.features.new_zeros(_TAPS, _WIDTH), self.features[prompt]]).double()
            right += _states(seen, seen[0])[len(prompt) - len(self.got[name]) :]
        of_requests = observe(torch.stack([state for states in self.got.values() for state in states]), torch.stack(right))
        held = torch.cat([self.windows[0].flatten(), self.states[0], self.states.new_ones(1)])
        zeros = torch.zeros_like(held, dtype=torch.float64)
        zeros[-1] = 1
        return combine(of_requests, observe(held, zeros))


def _states(seen: Any, state: Any) -> list[Any]:
    """Behind each token, of which `seen` has _TAPS more in front."""
    found = []
    for at in range(_TAPS, len(seen)):
        state = state * _DECAY + seen[at - _TAPS : at + 1].sum(0)
        found.append(state)
    return found


# What is asked of a server


def long_prompts(server: Checkpointing) -> None:
    """Alone and together; what they leave in the cache; and checkpoints of last chunks, where a draft's block was, and in one
    that has moved there."""
    between = server.draw.randint
    first = server.words(BLOCK * between(5, 8) + between(2, 14))
    lasts = [server.words(BLOCK * 3 + between(2, 14)), server.words(BLOCK * 4 + between(2, 8))]
    for prompt in (first, *lasts):
        server.ask([prompt])
    server.ask([said + server.words(7) for said in (first, *lasts)] + [server.words(BLOCK * 5 + 3)])
    assert server.hits == 3


def two_prompts(server: Checkpointing) -> None:
    """No request is in danger, and the null block may be."""
    first = server.words(BLOCK * 9 + 4)
    server.ask([first])
    server.ask([first + server.words(40), server.words(60)])
    assert server.hits == 1


def whole_prompts(server: Checkpointing) -> None:
    """Prompts that are computed at once, behind what is cached of them: each has its checkpoint."""
    between = server.draw.randint
    first = server.words(2 * BLOCK + between(2, 7))
    server.ask([first])
    server.ask([first + server.words(between(2, 5))])
    server.ask([first[: 2 * BLOCK] + server.words(BLOCK + 3)])
    assert server.hits == 2 and server.planned >= 2


class Checkpoints(Served):
    """Base of the proofs."""

    modules = (STORE, MIXER, _BESIDE)
    may_lack = modules
    kernel = "interpreted"
    kind = Checkpointing

    def prepare(self) -> None:
        super().prepare()
        if device() == "cpu":
            interpreter.take_any_mask()
