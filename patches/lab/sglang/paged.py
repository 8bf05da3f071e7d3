"""A server of sglang whose attention reads paged KV: one layer that sees all tokens, one with a window, against float64.

Real: `ServerArgs` and `ModelConfig` of a Gemma 2, its window as `models/gemma2.py` hands it on, `RadixAttention`, pools and
allocators, `ForwardBatch`, the inputs of speculation, backends by their own `__init__`, their layouts of a batch, their forward
and their Triton kernels, in the interpreter. FlashAttention 3 and FlashInfer are stand-ins. Played: the graph runner, which
calls a backend at capture and replay, and the scheduler, which frees the window pool's KV behind the window as early as any
release does. A replay attends again with the metadata of capture.

A case is a server (`Launch`) and what it runs in a row (`Step`):

    bug = case(decode((7, 30, 9)), decode((9,), graph=True), pool=True), case(prefill((0, 30), (20, 4)), page_size=4)
"""

from __future__ import annotations

import ast
import importlib
import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.emulators import flashinfer
from attnfix.patches.lab.excerpt import run_excerpt
from attnfix.patches.lab.gpu_memory import GpuMemory
from attnfix.patches.lab.proof import Cases, Observation, combine, cumulative, device, observe, replaced

from . import absent, construction, flash_attention  # noqa: F401  absent: its stand-ins for imports are wanted here
from .engine import accepted, module, on_cpu, required

FULL, SLIDING = 0, 1  # layers
ROOM, CONTEXT, WINDOW = 4, 64, 8  # requests; tokens of each; tokens that a token sees before itself in the window layer
SIZES = 2, ROOM  # of the graphs
HEADS, DIM = 2, 32
LATENT, ROPE = 32, 16  # widths of the two parts of a latent
CHAIN, TREE = (0, 1, 2, 3), (0, 0, 1, 2)  # the parents of the drafted tokens behind the first
FA3, TRITON = "flashattention_backend:FlashAttentionBackend", "triton_backend:TritonAttnBackend"
TRTLLM_MHA = "trtllm_mha_backend:TRTLLMHAAttnBackend"
_BACKENDS = "sglang.srt.layers.attention."
READS_POOLS = f"{flash_attention.BACKEND}:FlashAttentionBackend.__init__: use_sliding_window_kv_pool"
_EAGLE = "speculative.eagle_info", "speculative.eagle_utils"

_GEMMA2 = {
    **construction.LLAMA, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "num_attention_heads": HEADS,
    "num_key_value_heads": 1, "head_dim": DIM, "num_hidden_layers": 2, "max_position_embeddings": CONTEXT,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": DIM,
    "attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": False, "rms_norm_eps": 1e-6,
}  # fmt: skip
_DEEPSEEK = {
    **construction.DEEPSEEK, "num_hidden_layers": 2, "kv_lora_rank": LATENT, "qk_rope_head_dim": ROPE,
    "max_position_embeddings": CONTEXT, "torch_dtype": "float16",
}  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """How a server is launched.

    window: tokens that a token sees before itself in the window layer, or None for a model without; `whole`: the model hands
    its checkpoint's window on, which counts the token itself. pool: the window layer's KV has a pool of its own. topk, drafts,
    steps: of EAGLE, topk 0 for none; steps 0: those of a chain. sinks: each head has one. latent: KV are latents. flags: more
    of them. modes: attributes of the backend that are on, where the release has them. backend: FA3 or TRITON, where another one
    than the proof's attends.
    """

    page_size: int = 1
    kv_dtype: str = "auto"
    window: int | None = WINDOW
    whole: bool = False
    pool: bool = False
    topk: int = 0
    drafts: int = len(TREE) + 1
    steps: int = 0
    soft_cap: float = 0.0
    sinks: bool = False
    latent: bool = False
    flags: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    backend: str = ""


@dataclass(frozen=True)
class Step:
    """One batch: new tokens of requests behind what is cached of each.

    parents: of the drafted tokens of a verification. graph: it replays the smallest graph that holds it. layers: those that
    are judged. ahead: the model runner has translated the slots of the new tokens (0.5.8 to 0.5.12.post1).
    """

    mode: str
    cached: tuple[int, ...]
    new: tuple[int, ...]
    parents: tuple[int, ...] = ()
    graph: bool = False
    layers: tuple[int, ...] = (FULL, SLIDING)
    ahead: bool = False


def prefill(cached: tuple[int, ...], new: tuple[int, ...], mode: str = "EXTEND", **options: Any) -> Step:
    return Step(mode, cached, new, **options)


def decode(cached: tuple[int, ...], **options: Any) -> Step:
    return Step("DECODE", cached, (1,) * len(cached), **options)


def decodes(cached: tuple[int, ...], count: int = 2, **options: Any) -> tuple[Step, ...]:
    """So many decode steps in a row."""
    return tuple(decode(tuple(n + step for n in cached), **options) for step in range(count))


def verify(cached: tuple[int, ...], parents: tuple[int, ...] = TREE, **options: Any) -> Step:
    return Step("TARGET_VERIFY", cached, (len(parents) + 1,) * len(cached), parents, **options)


def draft(cached: tuple[int, ...], **options: Any) -> Step:
    """All steps of the draft model, one token of each branch in each. The full layer alone is judged."""
    return Step("DRAFT", cached, (0,) * len(cached), **options)


@dataclass(frozen=True)
class Case:
    launch: Launch
    steps: tuple[Step, ...]
    where: str = ""


def case(*steps: Step, where: str = "", **launch: Any) -> Case:
    """Steps in a row of a server launched so, in releases that have the place `where`, written as `Cases.needs`."""
    return Case(Launch(**launch), steps, where)


def launched(
    cases: tuple[Case, ...], parents: tuple[int, ...] = (), eager: bool = False, where: str = "", **launch: Any
) -> dict[str, tuple[Case, ...]]:
    """For `Proof.around`: the requests of these cases on servers launched so, in releases that have the place `where`.

    parents: of drafted tokens, where those of a verification follow each other otherwise. eager: no step replays a graph.
    """

    def changed(step: Step) -> Step:
        return replace(step, parents=step.parents and (parents or step.parents), graph=step.graph and not eager)

    return {"bug": tuple(
        replace(
            one, launch=replace(one.launch, **launch), steps=tuple(map(changed, one.steps)), where=where or one.where
        ) for one in cases
    )}  # fmt: skip


def on_fa3(cases: tuple[Case, ...]) -> dict[str, tuple[Case, ...]]:
    """The same on FlashAttention 3. It reads a window layer's own pool from 0.5.7 on; before, the layers share one."""
    pooled = (
        launched(cases, backend=FA3, where=READS_POOLS),
        launched(cases, backend=FA3, pool=False, where=f"no {READS_POOLS}"),
    )
    return {"bug": tuple(one for each in pooled for one in each["bug"])}


class Server:
    """One of `kind`, the backend's "module:Class", and the KV of its requests."""

    def __init__(self, kind: str, launch: Launch, seed: int):
        import torch

        self.launch, self.draw = launch, torch.Generator().manual_seed(seed)
        self.seen = 0 if launch.window is None else launch.window + 1  # tokens, the own one among them
        config = {**(_DEEPSEEK if launch.latent else _GEMMA2), "sliding_window": self.seen or None}
        name = {"triton_backend": "triton", "flashattention_backend": "fa3", "flashinfer_backend": "flashinfer"}
        name["trtllm_mha_backend"] = "trtllm_mha"
        flags = ["--attention-backend", name[kind.partition(":")[0]], "--triton-attention-num-kv-splits", "2", *launch.flags]
        if launch.kv_dtype != "auto":
            flags += ["--kv-cache-dtype", launch.kv_dtype]
        self.steps = launch.steps or launch.drafts - 1
        if launch.topk:
            flags += [
                "--speculative-algorithm", "EAGLE", "--speculative-num-steps", str(self.steps),
                "--speculative-eagle-topk", str(launch.topk), "--speculative-num-draft-tokens", str(launch.drafts),
            ]  # fmt: skip
        if launch.pool and not construction.window_pools_have_pages():
            launch = replace(launch, page_size=1)
        self.runner = construction.serve(
            *flags, config=config, requests=ROOM, tokens=(ROOM + 1) * CONTEXT * 2 * launch.page_size, draft=False,
            window=launch.pool, page_size=launch.page_size, device=device(), blackwell=kind.startswith("trtllm"),
        )  # fmt: skip
        if launch.topk and self.runner.server_args.speculative_num_draft_tokens != launch.drafts:
            raise ValueError(f"the engine does not verify {launch.drafts} tokens of {self.steps} steps")
        self.size, self.kv = self.runner.page_size, self.runner.token_to_kv_pool
        self._model()
        self.kind, self.backend = kind, self._mode(self.runner.backend(kind))
        for layer in (FULL, SLIDING):
            for buffer in self._buffers(layer):
                buffer.copy_(self._rows(*buffer.shape))  # others were there
        self._slots()
        heads, width = 1, LATENT + ROPE if launch.latent else DIM
        self.text = [[self._kept(self._rows(ROOM, self._width, heads, width)) for _ in "kv"] for _ in (FULL, SLIDING)]
        if launch.latent:
            self.text = [[k, k[..., :LATENT]] for k, _ in self.text]
        self.sinks = torch.randn(HEADS, generator=self.draw).add(2).bfloat16().to(device()) if launch.sinks else None
        self.held = [0] * ROOM  # tokens of each request that the cache holds: what the engine has written stays
        self.graphs: dict[tuple[str, int], Any] = {}
        self.memory: dict[int, GpuMemory] = {}
        self.steps_backend: Any = None
        self.branches: dict[int, Any] = {}

    def _model(self) -> None:
        """The attention layers of the model, and the window that the runner has of it."""
        import torch

        launch, kind = self.launch, module("layers.radix_attention").RadixAttention
        handed = None if launch.window is None else self.seen if launch.whole else _handed_on(self.runner.model_config)
        width, v_width = (LATENT + ROPE, LATENT) if launch.latent else (DIM, DIM)
        self.runner.model = torch.nn.ModuleList(
            kind(HEADS, width, width**-0.5, 1, layer_id, logit_cap=launch.soft_cap, sliding_window_size=window,
                 v_head_dim=v_width)
            for layer_id, window in ((FULL, -1), (SLIDING, -1 if handed is None else handed))
        )  # fmt: skip
        self.layers, self.runner.sliding_window_size = self.runner.model, handed

    def _mode(self, backend: Any) -> Any:
        vars(backend).update({name: True for name in self.launch.modes if hasattr(backend, name)})
        return backend

    def _slots(self) -> None:
        """Slots of all tokens of each request, whose pages come in any order, in the pools as the allocators give them."""
        import torch

        allocator, pages = self.runner.token_to_kv_pool_allocator, -(-self._width // self.size)
        order = torch.randperm(ROOM * pages, generator=self.draw).to(device())
        full, sliding = allocator, None
        if self.launch.pool:
            full, sliding = allocator.full_attn_allocator, allocator.swa_attn_allocator
            sliding.alloc(self.size)  # others have it
        slots = full.alloc(ROOM * pages * self.size).view(-1, self.size)[order]
        if sliding is not None:
            allocator.full_to_swa_index_mapping[slots.flatten()] = sliding.alloc(slots.numel()).to(torch.int64)
        self.req_to_token = self.runner.req_to_token_pool.req_to_token
        self.req_to_token[:ROOM] = slots.view(ROOM, -1)[:, : self._width].int()

    @property
    def _width(self) -> int:
        return int(self.runner.req_to_token_pool.req_to_token.shape[1])

    def _rows(self, *shape: int) -> Any:
        import torch

        return torch.randn(*shape, generator=self.draw).half().to(device())

    def _kept(self, rows: Any) -> Any:
        """What the pool's dtype keeps of rows."""
        return rows.to(self.runner.kv_cache_dtype).half()

    def _buffers(self, layer_id: int) -> tuple[Any, ...]:
        both = self.kv.get_key_buffer(layer_id), self.kv.get_value_buffer(layer_id)
        return both[:1] if self.launch.latent else both

    def _own(self, layer_id: int, slots: Any) -> Any:
        """Slots of tokens in the layer's pool."""
        if not (self.launch.pool and layer_id == SLIDING):
            return slots
        homes = self.kv, self.runner.token_to_kv_pool_allocator  # the latter up to 0.5.7
        home = next(one for one in homes if hasattr(one, "translate_loc_from_full_to_swa"))
        return home.translate_loc_from_full_to_swa(slots).long()

    def slots(self, row: int, tokens: range) -> Any:
        return self.req_to_token[row, list(tokens)].long()

    def fill(self, row: int, tokens: range, layers: tuple[int, ...] = (FULL, SLIDING)) -> None:
        """Put the keys and values of tokens where the engine has them."""
        for layer_id in layers:
            at = self._own(layer_id, self.slots(row, tokens))
            for buffer, text in zip(self._buffers(layer_id), self.text[layer_id]):
                buffer[at] = text[row, list(tokens)].to(buffer.dtype)

    def _take(self, row: int, tokens: range) -> None:
        """Pages of the window pool for tokens that have none."""
        import torch

        slots = self.slots(row, tokens)
        pages = (slots[self._own(SLIDING, slots) == 0] // self.size).unique()
        if len(pages):
            allocator = self.runner.token_to_kv_pool_allocator
            found = allocator.swa_attn_allocator.alloc(len(pages) * self.size).to(slots)
            whole = (pages[:, None] * self.size + torch.arange(self.size, device=device())).flatten()
            allocator.full_to_swa_index_mapping[whole] = found

    def _free(self, row: int, before: int) -> None:
        """Free the window pool's pages of tokens before this one, as the scheduler does; others write there."""
        slots = self.slots(row, range(before // self.size * self.size))
        own = self._own(SLIDING, slots)
        kept = own[own > 0]
        if len(kept):
            self.runner.token_to_kv_pool_allocator.free_swa(slots[own > 0])
            for buffer in self._buffers(SLIDING):
                buffer[kept] = self._rows(*buffer[kept].shape).to(buffer.dtype)

    def again(self, seed: int) -> Server:
        """The same one, with graphs that are captured anew."""
        self.draw.manual_seed(seed)
        self.graphs, self.memory = {}, {}
        return self

    # A step

    def run(self, step: Step) -> Observation:
        """Attention of the step's new tokens in each of its layers."""
        for row, n in enumerate(step.cached):
            if self.launch.pool:
                self._take(row, range(n + step.new[row]))
            self.fill(row, range(0 if self.launch.pool else self.held[row], n))
            skipped = tuple({FULL, SLIDING} - {*step.layers}) if not self.launch.latent else (FULL, SLIDING)
            self.fill(row, range(n, n + step.new[row]), skipped)
            self.held[row] = max(self.held[row], n + step.new[row])
            if self.launch.pool:
                self._free(row, max(0, n + 1 - self.seen))
        if step.graph and not any(mode == step.mode for mode, _ in self.graphs):
            self._capture(step)
        size = min(size for size in SIZES if size >= len(step.cached)) if step.graph else len(step.cached)
        backend, batch = self._backend(step), self._batch(step, size)
        with on_device():
            if step.graph:
                lay_out(backend, batch, self._tokens(step), capture=False)
                for one, metadata in zip(_parts(backend), self.graphs[step.mode, size]):
                    vars(one).update(metadata)
            else:
                backend.init_forward_metadata(batch)
        if step.mode == "DRAFT":
            seen = combine(*self._drafted(step, batch))
        else:
            seen = combine(*(self._attend(layer_id, step, batch) for layer_id in step.layers))
        intact = all(memory.intact() for memory in self.memory.values())
        return seen if intact else Observation(math.inf, seen.bits)

    def _backend(self, step: Step) -> Any:
        if step.mode != "DRAFT":
            return self.backend
        if self.steps_backend is None:
            name = self.kind.replace("Backend", "MultiStepBackend")
            self.steps_backend = self.runner.draft_steps(name)
        return self.steps_backend

    def _tokens(self, step: Step) -> int:
        """Of each request, in a batch of this kind."""
        return self.launch.topk if step.mode == "DRAFT" else step.new[0]

    def _capture(self, step: Step) -> None:
        """The buffers of the graphs, behind which lie words of others, and the metadata of each, the largest first."""
        backend, tokens = self._backend(step), self._tokens(step)
        if id(backend) not in self.memory:
            memory = self.memory[id(backend)] = GpuMemory(self.draw, others=2 * CONTEXT, asked=device(), words=(0, 2**20))
            with memory.given(), on_device():
                backend.init_cuda_graph_state(ROOM, ROOM * tokens)
        for size in sorted(SIZES, reverse=True):
            with on_device():
                lay_out(backend, self._batch(replace(step, cached=(), new=step.new[:1]), size), tokens, capture=True)
            self.graphs[step.mode, size] = [
                {name: value for name, value in vars(one).items() if name.startswith("forward_metadata")}
                for one in _parts(backend)
            ]

    def _attend(self, layer_id: int, step: Step, batch: Any) -> Observation:
        """The layer's attention of the new tokens against float64."""
        import torch

        rows = [(row, place) for row, (n, more) in enumerate(zip(step.cached, step.new)) for place in range(n, n + more)]
        paths = [path for n, more in zip(step.cached, step.new) for path in self._paths(layer_id, n, more, step.parents)]
        q = self._queries(layer_id, rows, paths)
        padding = len(batch.out_cache_loc) - len(rows)
        padded = [torch.cat([x, x.new_zeros(padding, *x.shape[1:])]) for x in (q, *self._texts(layer_id, rows))]
        forward = self.backend.forward_decode if step.mode == "DECODE" else self.backend.forward_extend
        translates = step.ahead and hasattr(self.kv, "set_swa_loc")
        with replaced(self.kv, "swa_loc", self._own(SLIDING, batch.out_cache_loc)) if translates else nullcontext():
            out = self._forward(forward, layer_id, batch, *padded)
        reference = [
            self._exact(layer_id, one, *(text[row, path[-self._reach(layer_id) :]] for text in self.text[layer_id]))
            for one, (row, _), path in zip(q, rows, paths)
        ]
        return observe(out[: len(q)], torch.stack(reference))

    def _forward(self, forward: Any, layer_id: int, batch: Any, q: Any, k: Any = None, v: Any = None) -> Any:
        """The engine's call; without keys and values, or with latents, which are in the cache. [tokens, heads, d]"""
        given: dict[str, Any] = {} if self.sinks is None else {"sinks": self.sinks}
        count = len(q)
        if self.launch.latent:
            given["q_rope"], q, k, v = q[..., LATENT:].contiguous(), q[..., :LATENT].contiguous(), None, None
        with on_device():
            out = forward(q.flatten(1), k, v, self.layers[layer_id], batch, save_kv_cache=k is not None, **given)
        return out.view(count, HEADS, -1)

    def _drafted(self, step: Step, batch: Any) -> Iterator[Observation]:
        """Attention of each step's tokens over what is cached and what their branch has drafted."""
        import torch

        slots = batch.out_cache_loc.view(batch.batch_size * self.launch.topk, self.steps)
        for number, backend in enumerate(self.steps_backend.attn_backends[: self.steps - 1]):
            q = self._kept(self._rows(len(slots), HEADS, self.text[FULL][0].shape[-1]))
            out, reference = self._forward(backend.forward_decode, FULL, batch, q), []
            for row, n in enumerate(step.cached):
                for branch in range(row * self.launch.topk, (row + 1) * self.launch.topk):
                    keys = torch.cat([self.slots(row, range(n)), slots[branch, : number + 1]])
                    reference.append(self._exact(FULL, q[branch], *self._at(FULL, keys)))
            yield observe(out[: len(reference)], torch.stack(reference))

    def _at(self, layer_id: int, slots: Any) -> list[Any]:
        """Keys and values that lie there."""
        k, *v = (buffer[slots].half() for buffer in self._buffers(layer_id))
        return [k, *(v or [k[..., :LATENT]])]

    def _reach(self, layer_id: int) -> int:
        return self.seen if layer_id == SLIDING else 0

    def _paths(self, layer_id: int, n: int, more: int, parents: tuple[int, ...]) -> list[list[int]]:
        """The tokens that each new one follows, and itself: all before it, or with `parents` its ancestors."""
        if not parents:
            return [[*range(n + token + 1)] for token in range(more)]
        ancestors = [[0]]
        for token, parent in enumerate(parents, 1):
            ancestors.append([*ancestors[parent], token])
        return [[*range(n), *(n + token for token in path)] for path in ancestors]

    def _texts(self, layer_id: int, rows: list[tuple[int, int]]) -> Iterator[Any]:
        import torch

        return (torch.stack([text[place] for place in rows]) for text in self.text[layer_id])

    def _queries(self, layer_id: int, rows: list[tuple[int, int]], paths: list[list[int]]) -> Any:
        """[tokens, heads, d]. Beyond the window they look for its oldest token and for the one before it; with a soft cap many
        scores reach it."""
        q = self._rows(len(rows), HEADS, self.text[layer_id][0].shape[-1])
        if self.launch.soft_cap:
            return self._kept(q * 4)
        reach, keys = self._reach(layer_id), self.text[layer_id][0]
        for one, (row, _), path in zip(q, rows, paths) if reach else ():
            if len(path) > reach:
                one.copy_(one / 4 + keys[row, path[-reach]] + keys[row, path[-reach - 1]])
        return self._kept(q)

    def _exact(self, layer_id: int, q: Any, k: Any, v: Any) -> Any:
        """Attention of one token, [heads, d], over keys and values of one head."""
        k, v = (x.expand(-1, HEADS, -1) for x in (k, v))
        scale, cap = float(self.layers[layer_id].scaling), self.launch.soft_cap
        return emulators.attention(q[None], k, v, scale, soft_cap=cap, sinks=self.sinks)[0][0]

    # Batches

    def _batch(self, step: Step, size: int) -> Any:
        """The step's requests in front, padding of one token behind them up to `size`, which writes to slot 0."""
        import torch

        count, padding = len(step.cached), size - len(step.cached)
        each = (*step.new[:count], *(step.new[0],) * padding)
        spans = [range(n, n + more) for n, more in zip(step.cached, step.new)]
        found = [self.slots(row, span) for row, span in enumerate(spans)]
        drafts, each_writes = step.mode in ("TARGET_VERIFY", "DRAFT"), step.new[0]
        before = [*step.cached, *[1 if drafts else 0] * padding]
        lens = before if drafts else [n + more for n, more in zip(before, each)]
        paths = [path for n, more in zip(before, each) for path in self._paths(FULL, n, more, step.parents)]
        positions = _tensor([len(path) - 1 for path in paths])
        fields: dict[str, Any] = {"spec_algorithm": self.runner.spec_algorithm, "sampling_info": SimpleNamespace()}
        if step.mode == "TARGET_VERIFY":
            fields["spec_info"] = self._drafts(step, before, positions)
        elif step.mode == "DRAFT":
            fields["spec_info"], each_writes = _input("EagleDraftInput", {}), self.launch.topk * self.steps
            found, positions = self._branches(step.cached), _tensor([0] * (size * self.launch.topk))
        elif step.mode != "DECODE":
            fields |= {
                "extend_num_tokens": sum(each), "extend_seq_lens": _tensor(each, torch.int32), "extend_seq_lens_cpu": [*each],
                "extend_prefix_lens": _tensor(before, torch.int32), "extend_prefix_lens_cpu": [*before],
                "extend_start_loc": cumulative(each)[:-1].to(device()),
            }  # fmt: skip
        return self.runner.forward_batch(
            "DECODE" if step.mode == "DRAFT" else step.mode, batch_size=size, input_ids=_tensor([0] * sum(each)),
            seq_lens=_tensor(lens), seq_lens_sum=sum(lens), seq_lens_cpu=torch.tensor(lens),
            req_pool_indices=_tensor([*range(count)] + [ROOM - 1] * padding), positions=positions,
            out_cache_loc=torch.cat([*found, _tensor([0] * (padding * each_writes))]), **fields,
        )  # fmt: skip

    def _drafts(self, step: Step, before: list[int], positions: Any) -> Any:
        """The engine's input of a verification."""
        import torch

        count = len(step.parents) + 1
        among = torch.zeros(count, count, dtype=torch.bool)
        for token, path in enumerate(self._paths(FULL, 0, count, step.parents)):
            among[token, path] = True
        mask = torch.cat([torch.cat([torch.ones(count, n, dtype=torch.bool), among], 1).flatten() for n in before])
        known = {
            "custom_mask": mask.to(device()), "positions": positions, "spec_steps": count - 1, "topk": self.launch.topk,
            "draft_token_num": count, "num_tokens_per_req": count,
        }  # fmt: skip
        return _input("EagleVerifyInput", known)

    def _branches(self, cached: tuple[int, ...]) -> list[Any]:
        """Slots of what each branch drafts. A chain goes on in the request's own pages; each branch of a tree has pages of its
        own, the first of which begins with a copy of what the request's last page holds."""
        if self.launch.topk == 1:
            return [self.slots(row, range(n, n + self.steps)) for row, n in enumerate(cached)]
        found, each = [], -(-self.steps // self.size) + 1
        for row, n in enumerate(cached):
            last = n % self.size
            kept = self.slots(row, range(n - last, n))
            for branch in range(row * self.launch.topk, (row + 1) * self.launch.topk):
                if branch not in self.branches:
                    self.branches[branch] = self.runner.token_to_kv_pool_allocator.alloc(each * self.size).long()
                own = self.branches[branch]
                for buffer in self._buffers(FULL):
                    buffer[own[:last]] = buffer[kept]
                found.append(own[last : last + self.steps])
        return found


def _input(name: str, known: dict[str, Any]) -> Any:
    """The engine's input of a step of speculation, of what is `known`."""
    kind = next(getattr(home, name) for one in _EAGLE if hasattr(home := module(one), name))
    return kind(**dict.fromkeys(required(kind)) | accepted(kind, known))


def _parts(backend: Any) -> list[Any]:
    """The backends of the steps of one, or itself."""
    return getattr(backend, "attn_backends", [backend])


def _tensor(values: Any, dtype: Any = None) -> Any:
    import torch

    return torch.tensor([*values], dtype=dtype or torch.int64, device=device())


def _handed_on(model_config: Any) -> int:
    """What `models/gemma2.py` hands on as the window; older releases cannot import that file without a GPU's kernels."""
    path = Path(module("layers.radix_attention").__file__).parents[1] / "models" / "gemma2.py"
    name = "get_attention_sliding_window_size"
    own = [part for part in ast.parse(path.read_text()).body if isinstance(part, ast.FunctionDef) and part.name == name]
    size: int = run_excerpt(path, *own)[name](model_config.hf_config)
    return size


def on_device() -> Any:
    """On a CPU the engine's "cuda" is one."""
    if device() != "cpu":
        return nullcontext()
    import torch

    stack = ExitStack()
    stack.enter_context(on_cpu())
    stack.enter_context(replaced(torch.cuda, "device", lambda _: nullcontext()))
    return stack


def lay_out(backend: Any, batch: Any, tokens: int, *, capture: bool) -> None:
    """Metadata of a batch, `tokens` of each request, through the call that the graph runner of this release makes."""
    if hasattr(backend, "init_forward_metadata_out_graph"):  # 0.5.13 and later
        return backend.init_forward_metadata_out_graph(batch, in_capture=capture)
    if hasattr(backend, "attn_backends"):
        name = f"init_forward_metadata_{'capture' if capture else 'replay'}_cuda_graph"
        return getattr(backend, name)(batch, *(() if capture else (batch.batch_size,)))
    what, rest = (batch.req_pool_indices, batch.seq_lens), (None, batch.forward_mode, batch.spec_info)
    if capture:
        return backend.init_forward_metadata_capture_cuda_graph(batch.batch_size, batch.batch_size * tokens, *what, *rest)
    return backend.init_forward_metadata_replay_cuda_graph(
        batch.batch_size, *what, batch.seq_lens_sum, *rest, seq_lens_cpu=batch.seq_lens_cpu
    )


class Paged(Cases):
    """Base of the proofs: a case is a server and its steps."""

    #: The backend's class, as its module is the first of `modules`
    kind = ""

    def server(self, launch: Launch, seed: int, of: type[Server] = Server) -> Server:
        """A server launched so; `of`: a class that changes parts of it."""
        return of(launch.backend or f"{self.modules[0].removeprefix(_BACKENDS)}:{self.kind}", launch, seed)

    def __init__(self) -> None:
        others = {case.launch.backend.partition(":")[0] for case in self.bug if case.launch.backend}
        self.modules = (*self.modules, *(_BACKENDS + name for name in others))
        super().__init__()
        self._servers: dict[Launch, Server] = {}

    def prepare(self) -> None:
        super().prepare()
        if backend := self.engine.get(flash_attention.BACKEND):
            kernels: Any = importlib.import_module("sgl_kernel.flash_attn")
            kernels.flash_attn_varlen_func, kernels.flash_attn_with_kvcache = None, flash_attention.paged
            kernels.get_scheduler_metadata = None
            backend.merge_state_v2 = emulators.merge_state_v2
            flash_attention.use(backend, flash_attention.paged)

    def scenario(self, seed: int) -> Iterable[Observation]:
        self._servers.clear()
        return super().scenario(seed)

    def run(self, case: Case, seed: int) -> Observation:
        """Cases that are launched alike are of one server; those that are spared may be of one that had the bug."""
        server = self._servers.get(case.launch)
        if server is None:
            server = self._servers[case.launch] = self.server(case.launch, seed)
        server.again(seed)
        return combine(*(server.run(step) for step in case.steps))


class Triton(Paged):
    modules: tuple[str, ...] = (f"{_BACKENDS}triton_backend",)
    kind = "TritonAttnBackend"
    kernel = "interpreted"


class FlashAttention(Paged):
    modules: tuple[str, ...] = (flash_attention.BACKEND,)
    kind = "FlashAttentionBackend"

    def run(self, case: Case, seed: int) -> Observation:
        try:
            return super().run(case, seed)
        except AssertionError as refused:
            if "page_table" not in str(refused):
                raise
            return Observation(math.inf, str(refused))  # later releases look, and refuse


class TrtllmMha(Paged):
    modules: tuple[str, ...] = (f"{_BACKENDS}trtllm_mha_backend",)
    kind = "TRTLLMHAAttnBackend"

    def prepare(self) -> None:
        super().prepare()
        use_trtllm_mha(self.engine[self.modules[0]])


def use_trtllm_mha(home: Any) -> None:
    """Put stand-ins in the place of the kernels of the backend's module."""
    if hasattr(home, "make_persistent_multi_ctas_kv_counter_buffer"):  # memory of the real ones
        home.make_persistent_multi_ctas_kv_counter_buffer = lambda *_, **__: None
    home.flashinfer = SimpleNamespace(
        decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache=emulators.PagedDecode()),
        prefill=SimpleNamespace(trtllm_batch_context_with_kv_cache=emulators.PagedContext()),
    )


class FlashInfer(Paged):
    modules = (f"{_BACKENDS}flashinfer_backend",)
    kind = "FlashInferAttnBackend"

    def prepare(self) -> None:
        super().prepare()
        backend = self.engine[self.modules[0]]
        for name in ("merge_state", "_safe_merge_state"):
            setattr(backend, name, flashinfer.merge_state)
        backend.BatchPrefillWithRaggedKVCacheWrapper = flashinfer.RaggedPrefill
        backend.BatchPrefillWithPagedKVCacheWrapper = flashinfer.PagedPrefill
        backend.BatchDecodeWithPagedKVCacheWrapper = flashinfer.PagedDecode
        if not hasattr(backend, "fast_decode_plan"):  # up to 0.5.2 the engine's own
            backend.fast_decode_plan = flashinfer.fast_decode_plan
