"""Proof of sglang.mla-draft-lengths: attention of each draft step, without CUDA graphs and in one, on three backends.

Real: construction of the multi-step backends and of those of their steps, the draft's lists of slots and the tables of pages
(Triton, interpreted), plans, capture and replay, forward. Emulated: FlashInfer's, FlashMLA's and TRT-LLM's kernels, which
attend to as many keys as they are told, and the graph, which repeats what ran while it was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.emulators import flashmla
from attnfix.patches.lab.emulators.flashinfer_mla import PagedLatent
from attnfix.patches.lab.proof import Observation, observe, replaced
from attnfix.patches.lab.sglang.engine import accepted, on_cpu
from attnfix.patches.lab.sglang.flash_attention import Options
from attnfix.patches.lab.sglang.speculation import draft_input

_ATTENTION = "sglang.srt.layers.attention"
_FLASHINFER, _FLASHMLA, _TRTLLM = (f"{_ATTENTION}.{name}_backend" for name in ("flashinfer_mla", "flashmla", "trtllm_mla"))
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_SPEC = "sglang.srt.speculative.eagle_utils"
_TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19
_DCP = "sglang.srt.layers.dcp.layout"
_KINDS = {  # module -> the backend of a step, of all steps, and the size of a page
    _FLASHINFER: ("FlashInferMLAAttnBackend", "FlashInferMLAMultiStepDraftBackend", 1),
    _FLASHMLA: ("FlashMLABackend", "FlashMLAMultiStepDraftBackend", 64),
    _TRTLLM: ("TRTLLMMLABackend", "TRTLLMMLAMultiStepDraftBackend", 64),
}

HEADS, LORA, ROPE = 2, 512, 64
DIM = LORA + ROPE
_STEPS, _DRAFT, _CONTEXT, _ROOM, _PAGE = 4, 5, 256, 4, 64
_WIDTH = -(-(_CONTEXT + 4 + _DRAFT) // _PAGE) * _PAGE


class Server:
    """What is behind a backend: rows of slots over a cache of latents. Row 0 belongs to padding rows."""

    def __init__(self, modules: dict[str, Any], home: str, seed: int):
        import torch

        self.modules, self.home, self.draw = modules, modules[home], torch.Generator().manual_seed(seed)
        kind, steps, self.page = _KINDS[home]
        pages = torch.randperm((_ROOM + 1) * _WIDTH // _PAGE, generator=self.draw).view(_ROOM + 1, -1, 1)
        self.req_to_token = (pages * _PAGE + torch.arange(_PAGE)).flatten(1).int()
        self.cache = torch.randn(self.req_to_token.numel(), 1, DIM, generator=self.draw).bfloat16()
        self.pool = SimpleNamespace(get_key_buffer=lambda layer: self.cache, page_size=self.page)
        self.layer = SimpleNamespace(
            tp_q_head_num=HEADS, tp_k_head_num=1, tp_v_head_num=1, head_dim=DIM, v_head_dim=LORA, scaling=DIM**-0.5,
            layer_id=0, k_scale=None, k_scale_float=None, logit_cap=0.0,
        )  # fmt: skip
        runner = self._runner()
        with on_cpu():
            made = getattr(self.home, steps)
            self.steps = made(runner, **accepted(made, {"topk": 1, "speculative_num_steps": _STEPS}))
            self.target = getattr(self.home, kind)(runner, skip_prefill=True)

    def _runner(self) -> Options:
        import torch

        args = Options(
            speculative_num_draft_tokens=_DRAFT, page_size=self.page, attn_tp_size=1, attn_dcp_size=1, tp_size=1, dp_size=1,
            disaggregation_mode="null",
        )  # fmt: skip
        vars(args)["kernel"] = args
        _answer(args, [self.modules[name] for name in (*_KINDS, _TRANSLATOR, _DCP) if name in self.modules])
        model = Options(
            context_len=_CONTEXT, num_attention_heads=HEADS, get_num_kv_heads=lambda *ranks: 1, kv_lora_rank=LORA,
            qk_nope_head_dim=128, qk_rope_head_dim=ROPE, v_head_dim=128, scaling=DIM**-0.5,
        )  # fmt: skip
        runner = Options(
            device="cpu", model_config=model, server_args=args, page_size=self.page, dtype=torch.bfloat16,
            kv_cache_dtype=torch.bfloat16, token_to_kv_pool=self.pool, is_draft_worker=True, max_running_requests=_ROOM,
            req_to_token_pool=SimpleNamespace(req_to_token=self.req_to_token, size=_ROOM),
        )  # fmt: skip
        if _TRANSLATOR in self.modules:
            vars(runner)["kv_index_translator"] = self.modules[_TRANSLATOR].KVIndexTranslator(
                req_to_token=self.req_to_token, token_to_kv_pool_allocator=None, token_to_kv_pool=self.pool,
                page_size=self.page, device="cpu",
            )  # fmt: skip
        return runner

    def draft(self, lens: list[int], graph: bool) -> Iterator[Observation]:
        """Attention of each step of requests with that many cached tokens."""
        return self._attend(self.steps, self.steps.attn_backends[: _STEPS - 1], lens, graph, range(1, _STEPS))

    def decode(self, lens: list[int], graph: bool) -> Iterator[Observation]:
        """Attention of the target's own step, whose lengths count the token."""
        return self._attend(self.target, [self.target], lens, graph, [0])

    def _attend(self, backend: Any, parts: list[Any], lens: list[int], graph: bool, beyond: Any) -> Iterator[Observation]:
        import torch

        size = _ROOM if graph else len(lens)
        q = torch.zeros(len(parts), size, HEADS, DIM).bfloat16()
        batch, graphs, outs = self._batch(size, backend is self.steps), [], []
        if graph:
            with on_cpu():
                backend.init_cuda_graph_state(_ROOM, _ROOM)
                _lay_out(backend, batch, capture=True)
            for part, rows in zip(parts, q):
                graphs.append(Graph())
                with self._recorded(graphs[-1]), graphs[-1].recording():
                    outs.append(part.forward_decode(rows.flatten(1), None, None, self.layer, batch, save_kv_cache=False))
        q.copy_(torch.randn(q.shape, generator=self.draw))
        self._fill(batch, lens)
        with on_cpu():
            if graph:
                _lay_out(backend, batch, capture=False)
            else:
                backend.init_forward_metadata(batch)
        for at, (part, rows, more) in enumerate(zip(parts, q, beyond)):
            if graph:
                graphs[at].replay()
                out = outs[at]
            else:
                out = part.forward_decode(rows.flatten(1), None, None, self.layer, batch, save_kv_cache=False)
            exact = []
            for b, n in enumerate(lens):
                keys = self.cache[self.req_to_token[b + 1, : n + more].long()].expand(-1, HEADS, -1)
                exact.append(emulators.attention(rows[b : b + 1], keys, keys[..., :LORA], DIM**-0.5)[0])
            for b, one in enumerate(exact):  # each row by itself: a long request's error is small beside a short one's
                yield observe(out.view(size, HEADS, LORA)[b : b + 1], one)

    @contextmanager
    def _recorded(self, graph: Graph) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(replaced(PagedLatent, "run", graph.recorded(PagedLatent.run)))
            former = self.modules[_FLASHMLA].flash_mla_with_kvcache
            stack.enter_context(replaced(self.modules[_FLASHMLA], "flash_mla_with_kvcache", graph.recorded(former)))
            decode = self.modules[_TRTLLM].flashinfer.decode
            name = "trtllm_batch_decode_with_kv_cache_mla"
            stack.enter_context(replaced(decode, name, graph.recorded(getattr(decode, name))))
            yield

    def _batch(self, size: int, drafts: bool) -> Any:
        """Padding rows of one token; at capture there are none but these."""
        import torch

        batch = object.__new__(self.modules[_BATCH].ForwardBatch)
        vars(batch).update(
            forward_mode=self.modules[_BATCH].ForwardMode.DECODE, batch_size=size, encoder_lens=None, input_ids=None,
            spec_info=draft_input(self.modules.get(_SPEC)) if drafts else None, out_cache_loc=None, kv_loc_plan=None,
            seq_lens=torch.ones(size, dtype=torch.int64), seq_lens_cpu=torch.ones(size, dtype=torch.int64), seq_lens_sum=size,
            req_pool_indices=torch.zeros(size, dtype=torch.int64), positions=torch.ones(size, dtype=torch.int64),
            token_to_kv_pool=self.pool, req_to_token_pool=SimpleNamespace(req_to_token=self.req_to_token),
            attn_dcp_metadata=None,
        )  # fmt: skip
        return batch

    def _fill(self, batch: Any, lens: list[int]) -> None:
        """Requests in front, in the tensors that the graph was captured with."""
        import torch

        batch.seq_lens[: len(lens)] = batch.positions[: len(lens)] = torch.tensor(lens)
        batch.req_pool_indices[: len(lens)] = torch.arange(1, len(lens) + 1)
        batch.seq_lens_cpu, batch.seq_lens_sum = batch.seq_lens.clone(), int(batch.seq_lens.sum())


def _answer(args: Options, modules: list[Any]) -> None:
    """What the engine's modules ask of the process they are told by `args`."""
    for module in modules:
        for name, asked in list(vars(module).items()):
            origin = getattr(asked, "__module__", "")
            if name == "get_buffer":
                setattr(module, name, lambda name, make: make())
            elif name in ("get_attention_tp_size", "get_attention_dcp_world_size"):
                setattr(module, name, lambda: 1)
            elif name == "get_cuda_graph_max_batch_size":
                setattr(module, name, lambda requests: requests)
            elif name == "global_server_args_dict":
                setattr(module, name, _Asked(args))
            elif name.startswith("get_") and (
                origin in ("sglang.srt.runtime_context", __name__) or name.endswith("server_args")
            ):
                setattr(module, name, lambda: args)


class _Asked(dict):
    """The dictionary of server arguments that the oldest releases have."""

    def __init__(self, args: Options):
        super().__init__()
        self.args = args

    def __missing__(self, name: str) -> Any:
        return getattr(self.args, name)


def _lay_out(backend: Any, batch: Any, capture: bool) -> None:
    """Metadata of a batch, through the call that the graph runner of this release makes at capture or replay."""
    if hasattr(backend, "init_forward_metadata_out_graph"):  # 0.5.13 and later
        return backend.init_forward_metadata_out_graph(batch, in_capture=capture)
    name = f"init_forward_metadata_{'capture' if capture else 'replay'}_cuda_graph"
    if hasattr(backend, "attn_backends"):
        return getattr(backend, name)(batch, *(() if capture else (batch.batch_size,)))
    shared = {"encoder_lens": None, "forward_mode": batch.forward_mode, "spec_info": None}
    if capture:
        return getattr(backend, name)(batch.batch_size, batch.batch_size, batch.req_pool_indices, batch.seq_lens, **shared)
    return getattr(backend, name)(
        batch.batch_size, batch.req_pool_indices, batch.seq_lens, batch.seq_lens_sum, seq_lens_cpu=batch.seq_lens_cpu, **shared
    )


class Proof(proof.Proof):
    modules = (*_KINDS, _BATCH, _SPEC, _TRANSLATOR, _DCP)
    may_lack = (_SPEC, _TRANSLATOR, _DCP)

    def prepare(self) -> None:
        import torch

        hopper: Any = SimpleNamespace(multi_processor_count=132, major=9, minor=0)
        torch.cuda.get_device_properties = lambda *_: hopper
        flashinfer, mla, trtllm = (self.engine[name] for name in _KINDS)
        flashinfer.BatchMLAPagedAttentionWrapper = PagedLatent
        flashinfer.BatchPrefillWithRaggedKVCacheWrapper = lambda *_, **__: None
        mla.get_mla_metadata, mla.flash_mla_with_kvcache = flashmla.schedule, flashmla.by_stride
        kernel = emulators.trtllm_batch_decode_with_kv_cache_mla
        trtllm.flashinfer = SimpleNamespace(decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache_mla=kernel))
        for name, stand_in in {
            "_jit_fixup_module": lambda *_: None, "can_use_set_mla_kv_concat_q": lambda *_: False,
            "can_use_set_mla_kv_concat_q_fp8": lambda *_: False,
            "make_persistent_multi_ctas_kv_counter_buffer": lambda *_, **__: None,
        }.items():  # fmt: skip
            if hasattr(trtllm, name):
                setattr(trtllm, name, stand_in)

    def scenario(self, seed: int) -> Iterator[Observation]:
        """Requests of unequal length; the drafts of one of them go on to another page."""
        for server in self._servers(seed):
            for graph in (False, True):
                yield from server.draft(self._lens(server), graph)

    def control(self, seed: int) -> Iterator[Observation]:
        """The target's own steps, on the same kinds of backends."""
        for server in self._servers(seed):
            for graph in (False, True):
                yield from server.decode(self._lens(server), graph)

    def _servers(self, seed: int) -> Iterator[Server]:
        return (Server(self.engine, home, seed) for home in _KINDS)

    def _lens(self, server: Server) -> list[int]:
        import torch

        few, many = torch.randint(2, 20, (2,), generator=server.draw).tolist()
        return [few, _PAGE - 1, 2 * _PAGE + many]

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        def counts(change: Callable[[int], int]) -> Any:
            return replaced(wrap, "Drafts", lambda tokens, limit: real(change(tokens), limit))

        real = wrap.Drafts
        return {
            "the correction does nothing": counts(lambda tokens: 0),
            "a draft does not see itself": counts(lambda tokens: tokens - 1),
            "a draft sees what comes next": counts(lambda tokens: tokens + 1),
            "one request is missed": replaced(wrap, "counted", _but_the_first),
            "kernels are told the engine's lengths": replaced(wrap, "mark", lambda *_: None),
        }


def _but_the_first(seq_lens: Any, drafts: Any) -> Any:
    found = seq_lens + drafts.tokens
    found[0] = seq_lens[0]
    return found
