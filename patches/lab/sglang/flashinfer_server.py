"""A FlashInfer backend of sglang, for a model with window layers and full ones, and the KV of its requests.

Real: how `FlashInferAttnBackend` lays out a batch, both updaters, what they plan, its forward, and the Triton kernel that
writes the KV indices, in the interpreter. Emulated: FlashInfer's wrappers and its merge, which mask as they were planned and
read the cache as it is at the call.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.emulators import flashinfer
from attnfix.patches.lab.proof import Observation, code_of, combine, cumulative, observe, replaced
from attnfix.patches.lab.sglang.engine import on_cpu

BACKEND = "sglang.srt.layers.attention.flashinfer_backend"
LAYER = "sglang.srt.layers.radix_attention"
BATCH = "sglang.srt.model_executor.forward_batch_info"
TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19
MODULES = (BACKEND, LAYER, BATCH, TRANSLATOR)
MAY_LACK = (TRANSLATOR,)
VERIFY = "sglang.srt.speculative.eagle_info"  # for those that verify

WINDOW, ROOM, CONTEXT = 8, 4, 64  # a token sees this many before it; requests; tokens of each
HEADS, KV_HEADS, DIM = 2, 1, 32
SLIDING, FULL = 0, 1  # layers


def use(module: Any) -> None:
    """Let the backend's module have one rank, and FlashInfer's emulated wrappers and merge."""
    for name in ("merge_state", "_safe_merge_state"):
        setattr(module, name, flashinfer.merge_state)
    module.BatchPrefillWithPagedKVCacheWrapper = flashinfer.PagedPrefill
    module.BatchDecodeWithPagedKVCacheWrapper = flashinfer.PagedDecode
    if not hasattr(module, "fast_decode_plan"):  # up to 0.5.2 the engine's own
        module.fast_decode_plan = flashinfer.fast_decode_plan
    if hasattr(module, "get_parallel"):
        module.get_parallel = lambda: SimpleNamespace(attn_tp_size=1, attn_dcp_size=1)
    else:
        module.get_attention_tp_size = lambda: 1


class Server:
    """A backend of a model of one window layer and a full one, and the KV of its requests.

    `windows`: without, both layers are full ones. `soft_cap`: of all scores, whose queries are made longer then. `modes`:
    attributes of the backend.
    """

    def __init__(self, modules: dict[str, Any], draw: Any, *, windows: bool = True, soft_cap: float = 0.0, **modes: bool):
        import torch

        self.modules, self.draw, self.windows, self.soft_cap = modules, draw, windows, soft_cap
        slots = ROOM * CONTEXT
        self.req_to_token = (torch.randperm(slots, generator=draw) + 1).view(ROOM, CONTEXT).int()
        self.tokens = [(self._rows(ROOM, CONTEXT), self._rows(ROOM, CONTEXT)) for _ in (SLIDING, FULL)]
        self.pool = Pool([(self._rows(slots + 1), self._rows(slots + 1)) for _ in (SLIDING, FULL)])
        kind = modules[LAYER].RadixAttention
        self.layers = torch.nn.ModuleList(
            kind(HEADS, DIM, DIM**-0.5, KV_HEADS, layer_id, logit_cap=soft_cap, sliding_window_size=window)
            for layer_id, window in ((SLIDING, WINDOW if windows else -1), (FULL, -1))
        )
        self.backend = self._backend(modes)
        self.captured: dict[int, Any] = {}  # batch size -> metadata of its graph; below 0 for decode steps

    def _queries(self, count: int) -> Any:
        """[count, HEADS, DIM]. With a soft cap many scores reach it."""
        import torch

        return torch.randn(count, HEADS, DIM, generator=self.draw).half() * (4 if self.soft_cap else 1)

    def _rows(self, *shape: int) -> Any:
        import torch

        return torch.randn(*shape, KV_HEADS, DIM, generator=self.draw).half()

    def prefill(self, cached: list[int], new: list[int], mode: str = "EXTEND", *, fill: bool = True) -> Observation:
        """Both layers' attention of the new tokens. With `fill` the cache is given what was cached."""
        batch = self._batch(cached, new, mode, fill)
        return self._attend(self.backend.forward_extend, batch, cached, new)

    def verify(self, cached: list[int], parents: list[int], topk: int, *, size: int | None = None,
               fill: bool = True) -> Observation:  # fmt: skip
        """Both layers' attention of trees of drafted tokens, each with these parents: `parents[i]` is that of token i + 1.

        With `size` the batch is padded to it, and replays what was captured for it. With `fill` the cache is given what was
        cached.
        """
        import torch

        seen = self._tree(parents)
        draft, count = len(seen), len(cached)
        room = size or count
        if size and size not in self.captured:
            self._capture(size, draft, topk)
        masks = [torch.cat([torch.ones(draft, n, dtype=torch.bool), seen], 1).flatten() for n in cached]
        positions = torch.cat([seen.sum(1) - 1 + n for n in cached])
        spec = self._verify_input(torch.cat(masks), positions, draft, topk)
        if fill:
            self._fill(cached)
        batch = self._verify_batch(cached, draft, room, spec)
        with on_cpu():
            if size:
                self.backend.init_forward_metadata_out_graph(batch)
                self.backend.forward_metadata = self.captured[size]
            else:
                self.backend.init_forward_metadata(batch)
        found = []
        for layer_id, layer in enumerate(self.layers):
            q = self._queries(room * draft)
            pad = lambda x: torch.cat([x, x.new_zeros((room - count) * draft, *x.shape[1:])])  # noqa: E731
            k, v = (pad(torch.cat([x[b, n : n + draft] for b, n in enumerate(cached)])) for x in self.tokens[layer_id])
            out = self.backend.forward_extend(q.flatten(1), k, v, layer, batch).view(q.shape)[: count * draft]
            reference = []
            for b, n in enumerate(cached):
                for token in range(draft):
                    first = max(0, n + int(seen[token].sum()) - 1 - WINDOW) if self._slides(layer_id) else 0
                    keys = [*range(first, n), *(n + seen[token].nonzero()[:, 0]).tolist()]
                    reference.append(self._of(q[b * draft + token], layer_id, b, keys))
            found.append(observe(out, torch.stack(reference)))
        return combine(*found)

    @staticmethod
    def _tree(parents: list[int]) -> Any:
        """Which drafted tokens each one sees: itself and the way to the root. Bool [tokens, tokens]."""
        import torch

        seen = torch.eye(len(parents) + 1, dtype=torch.bool)
        for token, parent in enumerate(parents, 1):
            seen[token] |= seen[parent]
        return seen

    def _capture(self, size: int, draft: int, topk: int) -> None:
        """As the engine's runner captures: requests of one token, a mask that shows all, positions that nobody knows yet."""
        import torch

        if not self.captured:
            with on_cpu():
                self.backend.init_cuda_graph_state(ROOM, ROOM * draft)
        spec = self._verify_input(torch.ones(ROOM * draft * (1 + draft), dtype=torch.bool), None, draft, topk)
        with on_cpu():
            self.backend.init_forward_metadata_out_graph(self._verify_batch([], draft, size, spec), in_capture=True)
        self.captured[size] = self.backend.forward_metadata

    def _verify_input(self, mask: Any, positions: Any, draft: int, topk: int) -> Any:
        kind = self.modules[VERIFY].EagleVerifyInput
        rest = ("draft_token", "retrieve_index", "retrieve_next_token", "retrieve_next_sibling", "retrieve_cum_len",
                "capture_hidden_mode", "seq_lens_sum", "seq_lens_cpu")  # fmt: skip
        return kind(
            custom_mask=mask, positions=positions, spec_steps=draft - 1, topk=topk, draft_token_num=draft,
            **dict.fromkeys(rest),
        )  # fmt: skip

    def _verify_batch(self, cached: list[int], draft: int, size: int, spec: Any) -> Any:
        """Requests in front, padding rows of one token behind them, which write to slot 0."""
        import torch

        padding = size - len(cached)
        lens = torch.tensor(cached + [1] * padding)
        slots = [self.req_to_token[b, n : n + draft].long() for b, n in enumerate(cached)]
        return self._forward_batch(
            "TARGET_VERIFY", batch_size=size, spec_info=spec, seq_lens=lens.int(), seq_lens_cpu=lens,
            seq_lens_sum=int(lens.sum()),
            req_pool_indices=torch.tensor([*range(len(cached))] + [ROOM - 1] * padding, dtype=torch.int32),
            out_cache_loc=torch.cat([*slots, torch.zeros(padding * draft, dtype=torch.long)]),
            positions=torch.zeros(size * draft, dtype=torch.long),
        )  # fmt: skip

    def decode(self, cached: list[int], *, graph: bool = False) -> Observation:
        """A decode step of requests with that much behind them; with `graph` replayed as it was captured for as many."""
        new, size = [1] * len(cached), len(cached)
        if graph and -size not in self.captured:
            if not self.captured:
                with on_cpu():
                    self.backend.init_cuda_graph_state(ROOM, ROOM)
            self._replay(self._batch([0] * size, new, "DECODE", False), capture=True)
            self.captured[-size] = self.backend.forward_metadata
        batch = self._batch(cached, new, "DECODE", True)
        return self._attend(self.backend.forward_decode, batch, cached, new, graph=graph)

    def _replay(self, batch: Any, capture: bool = False) -> None:
        """Metadata of a batch of decode steps, through the call that the graph runner of this release makes."""
        import torch

        with on_cpu(), replaced(torch.cuda, "device", lambda _: nullcontext()):
            if hasattr(self.backend, "init_forward_metadata_out_graph"):  # 0.5.13 and later
                return self.backend.init_forward_metadata_out_graph(batch, in_capture=capture)
            what = batch.req_pool_indices, batch.seq_lens
            rest = batch.encoder_lens, batch.forward_mode, batch.spec_info
            if capture:
                return self.backend.init_forward_metadata_capture_cuda_graph(batch.batch_size, batch.batch_size, *what, *rest)
            return self.backend.init_forward_metadata_replay_cuda_graph(
                batch.batch_size, *what, batch.seq_lens_sum, *rest, seq_lens_cpu=batch.seq_lens_cpu
            )

    def _attend(self, forward: Any, batch: Any, cached: list[int], new: list[int], graph: bool = False) -> Observation:
        import torch

        if graph:
            self._replay(batch)
            self.backend.forward_metadata = self.captured[-batch.batch_size]
        else:
            with on_cpu():
                self.backend.init_forward_metadata(batch)
        seen = []
        for layer_id, layer in enumerate(self.layers):
            spans = [(b, slice(n, n + more)) for b, (n, more) in enumerate(zip(cached, new))]
            q = self._queries(sum(new))
            k, v = (torch.cat([x[b, span] for b, span in spans]) for x in self.tokens[layer_id])
            out = forward(q.flatten(1), k, v, layer, batch).view(q.shape)
            reference = [
                self._reference(q[row : row + 1], layer_id, b, at)
                for row, (b, at) in enumerate((b, at) for b, span in spans for at in range(span.start, span.stop))
            ]
            seen.append(observe(out, torch.cat(reference)))
        return combine(*seen)

    def _reference(self, q: Any, layer_id: int, b: int, at: int) -> Any:
        first = max(0, at - WINDOW) if self._slides(layer_id) else 0
        return self._of(q[0], layer_id, b, range(first, at + 1))[None]

    def _of(self, q: Any, layer_id: int, b: int, keys: Any) -> Any:
        """Attention of one token of request `b` over its tokens `keys`, in float64. q: [heads, d]."""
        k, v = (x[b, list(keys)].repeat_interleave(HEADS // KV_HEADS, 1) for x in self.tokens[layer_id])
        return emulators.attention(q[None], k, v, DIM**-0.5, soft_cap=self.soft_cap)[0][0]

    def _slides(self, layer_id: int) -> bool:
        return self.windows and layer_id == SLIDING

    def _batch(self, cached: list[int], new: list[int], mode: str, fill: bool) -> Any:
        import torch

        int32 = lambda values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
        totals = [n + more for n, more in zip(cached, new)]
        slots = [row[n:total] for row, n, total in zip(self.req_to_token, cached, totals)]
        if fill:
            self._fill(cached)
        return self._forward_batch(
            mode, batch_size=len(new), spec_info=None, seq_lens=int32(totals), seq_lens_cpu=torch.tensor(totals),
            seq_lens_sum=sum(totals), req_pool_indices=int32(range(len(new))), extend_prefix_lens=int32(cached),
            extend_prefix_lens_cpu=cached, extend_seq_lens=int32(new), extend_seq_lens_cpu=new, extend_num_tokens=sum(new),
            extend_start_loc=cumulative(new)[:-1], out_cache_loc=torch.cat(slots).long(),
            positions=torch.zeros(sum(new), dtype=torch.long),
        )  # fmt: skip

    def _fill(self, cached: list[int]) -> None:
        for b, n in enumerate(cached):
            for layer, kv in zip(self.layers, self.tokens):
                self.pool.set_kv_buffer(layer, self.req_to_token[b, :n], *(x[b, :n] for x in kv))

    def _forward_batch(self, mode: str, **given: Any) -> Any:
        module = self.modules[BATCH]
        batch = object.__new__(module.ForwardBatch)
        vars(batch).update(
            given, forward_mode=module.ForwardMode[mode], encoder_lens=None, encoder_out_cache_loc=None, kv_loc_plan=None,
            token_to_kv_pool=self.pool, cross_attention_custom_mask=None, sampling_info=SimpleNamespace(),
        )  # fmt: skip
        if hasattr(self.translator, "own_plan"):
            batch.kv_loc_plan = self.translator.own_plan(batch)
        return batch

    def _backend(self, modes: dict[str, bool]) -> Any:
        import torch

        module = self.modules[BACKEND]
        self.translator: Any = None
        if TRANSLATOR in self.modules:
            self.translator = self.modules[TRANSLATOR].KVIndexTranslator(
                req_to_token=self.req_to_token, token_to_kv_pool_allocator=None, token_to_kv_pool=self.pool, page_size=1,
                device="cpu",
            )  # fmt: skip
        rows = SimpleNamespace(req_to_token=self.req_to_token)
        wrappers = 1 + self.windows
        indptr = lambda: [torch.zeros(ROOM + 1, dtype=torch.int32) for _ in range(wrappers)]  # noqa: E731
        paged = lambda: [flashinfer.PagedPrefill() for _ in range(wrappers)]  # noqa: E731
        given = {
            "page_size": 1, "num_wrappers": wrappers,
            "dispatch_reason": module.WrapperDispatch.SLIDING_WINDOW if self.windows else None,
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
            "prefill_wrappers_verify": paged(), "prefill_cuda_graph_metadata": {}, "workspace_buffer": None,
            "prefill_backend": "fa2", "decode_wrappers": [flashinfer.PagedDecode() for _ in range(wrappers)],
            "decode_backend": "fa2", "decode_use_tensor_cores": False, "decode_cuda_graph_metadata": {},
            "disable_cuda_graph_kv_split": False,
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
            sliding_window_size=WINDOW if self.windows else None, req_to_token_pool=rows, token_to_kv_pool=self.pool,
            token_to_kv_pool_allocator=None, kv_index_translator=self.translator,
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
