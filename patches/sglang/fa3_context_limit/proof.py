"""Proof of sglang.fa3-context-limit: verification and draft steps of requests just below the context length, in CUDA graphs.

Real: construction of `FlashAttentionBackend` and `FlashAttentionMultiStepBackend`, their tables of a graph, capture, replay and
forward. FlashAttention 3 is emulated with what it knows of a page table: where a row begins, and from the lengths how many
pages to read. The memory of the tables is watched: behind each lie random words that belong to others.
"""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.gpu_memory import GpuMemory
from attnfix.patches.lab.proof import Observation, combine, device, observe, replaced
from attnfix.patches.lab.sglang import flash_attention, window_pool
from attnfix.patches.lab.sglang.flash_attention import BACKEND, CONFIG, Options
from attnfix.patches.lab.sglang.speculation import draft_input
from attnfix.patches.lab.sglang.window_pool import DIM, FULL, HEADS, TRANSLATOR

_BATCH = "sglang.srt.model_executor.forward_batch_info"
_SPEC = "sglang.srt.speculative.eagle_utils"

_ROOM, _CONTEXT = 3, 48  # requests, tokens per request
_STEPS, _DRAFT = 6, 7  # of the draft model; tokens that are verified
_WIDTH = _CONTEXT + 4 + _DRAFT  # of a row of slots, as the engine makes it
_LONGEST = _CONTEXT - 4  # tokens in the cache of a request that gets one more token
_PAGES = 1, 4


def kernel(q, k_cache, v_cache, *, page_table, cache_seqlens, cu_seqlens_q, **launch):
    """`flash_attn_with_kvcache`, with no end of a row or of the table. A page that the cache lacks is an illegal memory access:
    NaN for the request."""
    import torch

    memory = page_table.as_strided((page_table.untyped_storage().nbytes() // 4,), (1,), 0)
    most = -(-int(cache_seqlens.max()) // k_cache.shape[1])
    rows = [memory[at : at + most] for at in range(page_table.storage_offset(), len(memory), page_table.stride(0))]
    pages = torch.stack(rows[: len(cache_seqlens)])
    found = (pages >= 0) & (pages < len(k_cache))
    launch |= {"cache_seqlens": cache_seqlens, "cu_seqlens_q": cu_seqlens_q}
    out = flash_attention.paged(q, k_cache, v_cache, page_table=pages * found, **launch)
    at = cu_seqlens_q.tolist()
    for b, n in enumerate(cache_seqlens.tolist()):
        if not found[b, : -(-n // k_cache.shape[1])].all():
            out[at[b] : at[b + 1]] = math.nan
    return out


class _Server:
    """A server over KV of requests and of what is drafted behind, in pages of `size` tokens, that verifies `drafts` tokens."""

    def __init__(self, modules: dict[str, Any], seed: int, size: int, drafts: int | None):
        import torch

        self.modules, self.draw = modules, torch.Generator().manual_seed(seed)
        pages = -(-_WIDTH // size)
        order = torch.randperm(_ROOM * pages, generator=self.draw) + 1
        slots = (order.view(_ROOM, pages, 1) * size + torch.arange(size)).flatten(1)
        self.req_to_token = slots[:, :_WIDTH].int().contiguous().to(device())
        self.kv = window_pool.Rows(self.draw, (_ROOM * pages + 1) * size)
        vars(self.kv)["page_size"] = size
        ranks = {"tp_size": 1, "attn_cp_size": 1}
        args = Options(
            **ranks, attn_tp_size=1, speculative_num_draft_tokens=drafts, speculative_eagle_topk=1,
            speculative_algorithm=drafts and "EAGLE", speculative_num_steps=_STEPS,
        )  # fmt: skip
        model = Options(
            context_len=_CONTEXT, head_dim=DIM, hf_text_config=SimpleNamespace(num_attention_heads=HEADS),
            get_num_kv_heads=lambda ranks: HEADS,
        )  # fmt: skip
        runner = flash_attention.runner(modules, args, model, self.kv, self.req_to_token, page_size=size, **ranks)
        self.target = modules[BACKEND].FlashAttentionBackend(runner)
        if drafts:
            self.steps = modules[BACKEND].FlashAttentionMultiStepBackend(runner, 1, _STEPS)

    def verify(self, lens: list[int], graph: bool = True) -> Observation:
        """Attention of the target model over drafts of each request."""
        memory = self._allocate(self.target, _DRAFT) if graph else None
        batch = self._batch(lens, self.modules[_BATCH].ForwardMode.TARGET_VERIFY, _DRAFT)
        return self._checked(memory, lambda: self._attend(self.target, batch, graph, [_DRAFT]))

    def draft(self, lens: list[int]) -> Observation:
        """Attention of all steps of the draft model, one token of each request in each."""
        memory = self._allocate(self.steps, 1)
        batch = self._batch(lens, self.modules[_BATCH].ForwardMode.DECODE, 1)
        return self._checked(memory, lambda: self._attend(self.steps, batch, True, range(1, _STEPS)))

    def decode(self, lens: list[int]) -> Observation:
        """Attention of a step of a server that drafts nothing."""
        memory = self._allocate(self.target, 1)
        batch = self._batch(lens, self.modules[_BATCH].ForwardMode.DECODE, 1, spec=False)
        return self._checked(memory, lambda: self._attend(self.target, batch, True, [0]))

    def _allocate(self, backend: Any, tokens: int) -> GpuMemory:
        memory = GpuMemory(self.draw, others=_WIDTH, asked=device())
        with memory.given():
            backend.init_cuda_graph_state(_ROOM, _ROOM * tokens)
        return memory

    def _checked(self, memory: GpuMemory | None, run: Any) -> Observation:
        try:
            found = run()
        except AssertionError as refused:
            if "page_table" not in str(refused):
                raise
            return Observation(math.inf, str(refused))  # later releases look, and refuse
        return found if memory is None or memory.intact() else Observation(math.inf, found.bits)

    def _attend(self, backend: Any, batch: Any, graph: bool, reached: Any) -> Observation:
        """`reached`: the tokens behind a request's length that its queries see, of each step."""
        import torch

        if graph:
            for capture in (True, False):
                flash_attention.lay_out(backend, batch, capture)
        else:
            backend.init_forward_metadata(batch)
        layer, lens, outs, exact = window_pool.layer(FULL, -1), batch.seq_lens.tolist(), [], []
        each = batch.out_tokens
        for step, behind in zip(getattr(backend, "attn_backends", [backend]), reached):
            q = torch.randn(_ROOM * each, HEADS, DIM, generator=self.draw).half().to(device())
            forward = step.forward_extend if each > 1 else step.forward_decode
            outs.append(forward(q.flatten(1), None, None, layer, batch, save_kv_cache=False).view(-1, HEADS, DIM))
            for token, one in enumerate(q.split(1)):
                b, last = token // each, behind - (each - 1 - token % each)
                slots = self.req_to_token[b, : lens[b] + last].long()
                exact.append(emulators.attention(one, self.kv.k[slots], self.kv.v[slots], DIM**-0.5)[0])
        return observe(torch.cat(outs), torch.cat(exact))

    def _batch(self, lens: list[int], mode: Any, tokens: int, spec: bool = True) -> Any:
        import torch

        seq_lens = torch.tensor(lens, device=device())
        slots = torch.cat([row[n : n + tokens] for row, n in zip(self.req_to_token, lens)]).long()
        drafts = draft_input(self.modules.get(_SPEC), draft_token_num=tokens, num_tokens_per_req=tokens)
        batch = object.__new__(self.modules[_BATCH].ForwardBatch)
        batch.__dict__.update(
            forward_mode=mode, batch_size=_ROOM, spec_info=drafts if spec else None, encoder_lens=None,
            seq_lens=seq_lens, seq_lens_cpu=seq_lens.cpu(), seq_lens_sum=sum(lens), out_cache_loc=slots, out_tokens=tokens,
            req_pool_indices=torch.arange(_ROOM, device=device()), token_to_kv_pool=self.kv, kv_loc_plan=None,
            req_to_token_pool=SimpleNamespace(req_to_token=self.req_to_token), attn_cp_metadata=None, input_ids=None,
            attn_attend_prefix_cache=None, positions=torch.zeros(_ROOM * tokens, dtype=torch.int64, device=device()),
            spec_algorithm=SimpleNamespace(is_uno=lambda: False),
        )  # fmt: skip
        return batch


def _lens(server: _Server, most: int = _LONGEST) -> list[int]:
    """Two requests of `most` tokens, and a shorter one between them."""
    import torch

    return [most, int(torch.randint(2, most, (), generator=server.draw)), most]


class Proof(proof.Proof):
    modules = (BACKEND, _BATCH, CONFIG, TRANSLATOR, _SPEC)
    may_lack = (TRANSLATOR, _SPEC)

    def prepare(self) -> None:
        kernels: Any = importlib.import_module("sgl_kernel.flash_attn")
        kernels.flash_attn_varlen_func, kernels.flash_attn_with_kvcache = None, kernel
        kernels.get_scheduler_metadata = None
        flash_attention.use(self.engine[BACKEND], kernel)

    def scenario(self, seed: int) -> Observation:
        """One request near the limit in front of a short one, and one behind."""
        self._servers, found = self._made(seed), []
        for one in self._servers:
            lens = _lens(one)
            found += [one.verify(lens), one.draft(lens)]
        return combine(*found)

    def control(self, seed: int) -> Observation:
        """On the same backends short requests, and long ones without a graph; a server that drafts nothing, up to the limit."""
        found = []
        for one in self._servers or self._made(seed):
            one.draw.manual_seed(seed)
            short = _lens(one, most=_CONTEXT - _DRAFT)
            found += [one.verify(short), one.draft(short), one.verify(_lens(one), graph=False)]
        for size in _PAGES:
            plain = _Server(self.engine, seed, size, None)
            found.append(plain.decode(_lens(plain)))
        return combine(*found)

    _servers: tuple[_Server, ...] = ()

    def _made(self, seed: int) -> tuple[_Server, ...]:
        return tuple(_Server(self.engine, seed, size, _DRAFT) for size in _PAGES)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        ways = {
            "the correction does nothing": lambda backend: backend.max_context_len,
            "the last draft tokens are forgotten": lambda backend: _LONGEST + _DRAFT - 2,
        }
        return {name: replaced(wrap, "addressable", way) for name, way in ways.items()}
