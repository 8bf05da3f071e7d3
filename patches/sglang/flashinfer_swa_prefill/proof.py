"""Proof of sglang.flashinfer-swa-prefill: prefill of a model with window layers and full ones, judged layer by layer.

Real: how `FlashInferAttnBackend` lays out a batch, both updaters, what they plan, its forward, and the Triton kernel that
writes the KV indices, in the interpreter. Emulated: FlashInfer's wrappers and its merge, which mask as they were planned and
read the cache as it is at the call.
"""

from __future__ import annotations

import dis
from types import SimpleNamespace
from typing import Any

from attnfix.patches.proofkit import emulators, proof
from attnfix.patches.proofkit.emulators import flashinfer
from attnfix.patches.proofkit.proof import Observation, code_of, combine, cumulative, observe, replaced
from attnfix.patches.proofkit.sglang.engine import on_cpu

_BACKEND = "sglang.srt.layers.attention.flashinfer_backend"
_LAYER = "sglang.srt.layers.radix_attention"
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19

WINDOW, ROOM, CONTEXT = 8, 4, 64  # a token sees this many before it; requests; tokens of each
HEADS, KV_HEADS, DIM = 2, 1, 32
SLIDING, FULL = 0, 1  # layers

#: Cached and new tokens of the requests of a batch
NOTHING_CACHED = [0, 0, 0], [20, 5, WINDOW + 1]
CACHED = [30, 3, 0], [4, 2, 1]
BOTH = [0, 25, 6, 12], [17, 12, 1, 10]
WITHIN = [0, 0, 0], [WINDOW + 1, 4, 1]


class Server:
    """A backend of a model of one window layer and a full one, and the KV of its requests."""

    def __init__(self, modules: dict[str, Any], draw: Any, **modes: bool):
        import torch

        self.modules, self.draw = modules, draw
        slots = ROOM * CONTEXT
        self.req_to_token = (torch.randperm(slots, generator=draw) + 1).view(ROOM, CONTEXT).int()
        self.tokens = [(self._rows(ROOM, CONTEXT), self._rows(ROOM, CONTEXT)) for _ in (SLIDING, FULL)]
        self.pool = Pool([(self._rows(slots + 1), self._rows(slots + 1)) for _ in (SLIDING, FULL)])
        kind = modules[_LAYER].RadixAttention
        self.layers = torch.nn.ModuleList(
            kind(HEADS, DIM, DIM**-0.5, KV_HEADS, layer_id, sliding_window_size=window)
            for layer_id, window in ((SLIDING, WINDOW), (FULL, -1))
        )
        self.backend = self._backend(modes)

    def _rows(self, *shape: int) -> Any:
        import torch

        return torch.randn(*shape, KV_HEADS, DIM, generator=self.draw).half()

    def prefill(self, cached: list[int], new: list[int], mode: str = "EXTEND", *, fill: bool = True) -> Observation:
        """Both layers' attention of the new tokens. With `fill` the cache is given what was cached."""
        batch = self._batch(cached, new, mode, fill)
        return self._attend(self.backend.forward_extend, batch, cached, new)

    def decode(self, cached: list[int]) -> Observation:
        """A decode step of requests with that much behind them."""
        new = [1] * len(cached)
        batch = self._batch(cached, new, "DECODE", True)
        return self._attend(self.backend.forward_decode, batch, cached, new)

    def _attend(self, forward: Any, batch: Any, cached: list[int], new: list[int]) -> Observation:
        import torch

        with on_cpu():
            self.backend.init_forward_metadata(batch)
        seen = []
        for layer_id, layer in enumerate(self.layers):
            spans = [(b, slice(n, n + more)) for b, (n, more) in enumerate(zip(cached, new))]
            q = torch.randn(sum(new), HEADS, DIM, generator=self.draw).half()
            k, v = (torch.cat([x[b, span] for b, span in spans]) for x in self.tokens[layer_id])
            out = forward(q.flatten(1), k, v, layer, batch).view(q.shape)
            reference = [
                self._reference(q[row : row + 1], layer_id, b, at)
                for row, (b, at) in enumerate((b, at) for b, span in spans for at in range(span.start, span.stop))
            ]
            seen.append(observe(out, torch.cat(reference)))
        return combine(*seen)

    def _reference(self, q: Any, layer_id: int, b: int, at: int) -> Any:
        first = max(0, at - WINDOW) if layer_id == SLIDING else 0
        k, v = (x[b, first : at + 1].repeat_interleave(HEADS // KV_HEADS, 1) for x in self.tokens[layer_id])
        return emulators.attention(q, k, v, DIM**-0.5)[0]

    def _batch(self, cached: list[int], new: list[int], mode: str, fill: bool) -> Any:
        import torch

        int32 = lambda values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
        totals = [n + more for n, more in zip(cached, new)]
        slots = [row[n:total] for row, n, total in zip(self.req_to_token, cached, totals)]
        for b, n in enumerate(cached if fill else []):
            for layer, kv in zip(self.layers, self.tokens):
                self.pool.set_kv_buffer(layer, self.req_to_token[b, :n], *(x[b, :n] for x in kv))
        module = self.modules[_BATCH]
        batch = object.__new__(module.ForwardBatch)
        vars(batch).update(
            forward_mode=module.ForwardMode[mode], batch_size=len(new), spec_info=None, encoder_lens=None,
            seq_lens=int32(totals), seq_lens_cpu=torch.tensor(totals), seq_lens_sum=sum(totals),
            req_pool_indices=int32(range(len(new))), extend_prefix_lens=int32(cached), extend_prefix_lens_cpu=cached,
            extend_seq_lens=int32(new), extend_seq_lens_cpu=new, extend_num_tokens=sum(new),
            extend_start_loc=cumulative(new)[:-1], out_cache_loc=torch.cat(slots).long(),
            encoder_out_cache_loc=None, token_to_kv_pool=self.pool, kv_loc_plan=None, cross_attention_custom_mask=None,
        )  # fmt: skip
        if hasattr(self.translator, "own_plan"):
            batch.kv_loc_plan = self.translator.own_plan(batch)
        return batch

    def _backend(self, modes: dict[str, bool]) -> Any:
        import torch

        module = self.modules[_BACKEND]
        self.translator: Any = None
        if _TRANSLATOR in self.modules:
            self.translator = self.modules[_TRANSLATOR].KVIndexTranslator(
                req_to_token=self.req_to_token, token_to_kv_pool_allocator=None, token_to_kv_pool=self.pool, page_size=1,
                device="cpu",
            )  # fmt: skip
        rows = SimpleNamespace(req_to_token=self.req_to_token)
        indptr = lambda: [torch.zeros(ROOM + 1, dtype=torch.int32) for _ in range(2)]  # noqa: E731
        paged = lambda: [flashinfer.PagedPrefill() for _ in range(2)]  # noqa: E731
        given = {
            "page_size": 1, "num_wrappers": 2, "dispatch_reason": module.WrapperDispatch.SLIDING_WINDOW,
            "max_context_len": CONTEXT, "skip_prefill": False, "is_multimodal": False, "enable_deterministic": False,
            "use_paged": False, "enable_mis": False, "multi_item_scoring_delimiter": None, "is_dllm_model": False,
            "dllm_config": None, "prefill_uses_dequant_workspace": False, "decode_uses_dequant_workspace": False,
            "kv_cache_quant_method": SimpleNamespace(needs_global_scale=lambda: False), "dq_page_table": None,
            "dq_paged_kernel_lens": None, "flashinfer_kv_cache_dtype": torch.float16, "prefill_split_tile_size": None,
            "decode_split_tile_size": None, "use_sliding_window_kv_pool": False, "_swa_kv_pool": None,
            "token_to_kv_pool": self.pool, "kv_index_translator": self.translator, "req_to_token_pool": rows,
            "kv_indptr": indptr(), "qo_indptr": indptr(), "forward_metadata": None,
            "kv_last_page_len": torch.ones(ROOM, dtype=torch.int32),
            "prefill_wrapper_ragged": flashinfer.RaggedPrefill(), "prefill_wrappers_paged": paged(),
            "prefill_wrappers_verify": paged(), "decode_wrappers": [flashinfer.PagedDecode() for _ in range(2)],
        }  # fmt: skip
        backend = object.__new__(module.FlashInferAttnBackend)
        has = code_of(module.FlashInferAttnBackend.__init__).co_names
        vars(backend).update((name, value) for name, value in (given | modes).items() if name in has)
        config = SimpleNamespace(
            num_attention_heads=HEADS, get_max_num_attention_heads=lambda: HEADS, get_num_kv_heads=lambda *ranks: KV_HEADS,
            head_dim=DIM,
        )  # fmt: skip
        runner = SimpleNamespace(
            model=self.layers, model_config=config, dtype=torch.float16, kv_cache_dtype=torch.float16, page_size=1,
            sliding_window_size=WINDOW, req_to_token_pool=rows, token_to_kv_pool=self.pool, token_to_kv_pool_allocator=None,
            kv_index_translator=self.translator,
        )  # fmt: skip
        backend.indices_updater_prefill = module.FlashInferIndicesUpdaterPrefill(runner, backend)
        backend.indices_updater_decode = module.FlashInferIndicesUpdaterDecode(runner, backend)
        return backend


class Pool:
    """One pool for all layers, as the engine keeps it for Gemma; what nobody wrote is of others."""

    def __init__(self, buffers: list[tuple[Any, Any]]):
        self.buffers = buffers

    def get_kv_buffer(self, layer_id: int) -> tuple[Any, Any]:
        return self.buffers[layer_id]

    def set_kv_buffer(self, layer: Any, loc: Any, k: Any, v: Any, *scales: Any, **_: Any) -> None:
        at = getattr(loc, "loc", loc).long()  # the newest releases say where by an object
        for buffer, rows in zip(self.buffers[layer.layer_id], (k, v)):
            buffer[at] = rows.view(-1, KV_HEADS, DIM)


class Proof(proof.Proof):
    modules = (_BACKEND, _LAYER, _BATCH, _TRANSLATOR)
    may_lack = (_TRANSLATOR,)

    def prepare(self) -> None:
        module = self.engine[_BACKEND]
        for name in ("merge_state", "_safe_merge_state"):
            setattr(module, name, flashinfer.merge_state)
        if hasattr(module, "get_parallel"):  # one rank
            module.get_parallel = lambda: SimpleNamespace(attn_tp_size=1, attn_dcp_size=1)
        else:
            module.get_attention_tp_size = lambda: 1

    def scenario(self, seed: int) -> Observation:
        """Prompts longer than the window, and short ones behind a cached prefix; as released, of a multimodal model, and in
        deterministic mode."""
        return combine(*(seen for modes in ({}, {"is_multimodal": True}, {"enable_deterministic": True})
                         for seen in self._prefills(seed, modes)))  # fmt: skip

    def control(self, seed: int) -> Observation:
        """Prompts within the window, and decode steps."""
        server = self._server(seed)
        return combine(server.prefill(*WITHIN), server.decode([30, 3, WINDOW, 12]), server.prefill(*WITHIN))

    def _server(self, seed: int, **modes: bool) -> Server:
        import torch

        return Server(self.engine, torch.Generator().manual_seed(seed), **modes)

    def _prefills(self, seed: int, modes: dict[str, bool]) -> list[Observation]:
        server = self._server(seed, **modes)
        seen = [server.prefill(*NOTHING_CACHED), server.prefill(*CACHED), server.prefill(*BOTH, mode="MIXED")]
        server = self._server(seed + 1, **modes)  # one prompt in chunks
        return seen + [server.prefill([at], [n], fill=False) for at, n in ((0, 12), (12, 20), (32, 5))]

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        ragged, updater = wrap.ragged_misses, self.engine[_BACKEND].FlashInferIndicesUpdaterPrefill
        found: dict[str, Any] = {
            "the correction does nothing": replaced(wrap, "PLAIN", frozenset()),
            "long prompts are missed where nothing is cached": replaced(
                wrap, "ragged_misses", lambda learnt, cached, new: any(cached) and ragged(learnt, cached, new)
            ),
            "only the first request is looked at": replaced(
                wrap, "ragged_misses", lambda learnt, cached, new: ragged(learnt, cached[1:2], new[1:2])
            ),
            "the ragged mode stays": replaced(wrap, "switch", lambda backend: "another_switch"),
        }
        plan = code_of(updater.call_begin_forward)
        if "window_left" not in plan.co_varnames[: plan.co_argcount]:  # up to 0.5.15.post1
            found["the window is not planned"] = replaced(wrap, "with_window", lambda plan, window: plan)
            found["batches of paged-only mode are missed"] = replaced(wrap, "paged_misses", lambda *batch: False)
        if not _reads(code_of(updater.update_sliding_window), "extend_prefix_lens_cpu"):  # up to 0.5.20
            found["short prompts with a prefix are missed"] = replaced(
                wrap, "ragged_misses", lambda learnt, cached, new: ragged(learnt, [], new)
            )
        return found


def _reads(code: Any, name: str) -> bool:
    return any(one.opname.startswith("LOAD_FAST") and one.argval == name for one in dis.get_instructions(code))
