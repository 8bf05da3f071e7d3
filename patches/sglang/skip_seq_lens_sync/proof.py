"""Proof of sglang.skip-seq-lens-sync: three steps of EAGLE on two trtllm_mla backends and a multi-step draft.

Real: the decision, the relay of the lengths between the steps, the backends' CUDA graph state, the worker's draft with its tree
building. Emulated: sgl_kernel's tree kernel, and the draft model's choice of tokens.
The fault is put back into 0.5.13, which has the opt-out, by an edit.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
from functools import cache
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.compat.gate.digest import find
from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.excerpt import run_excerpt
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, replaced

from .edits import LOOKALIKES, RECOGNISED

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend"
_OVERLAP = "sglang.srt.managers.overlap_utils"
_UTILS = "sglang.srt.speculative.eagle_utils"
_TRITON = "sglang.srt.layers.attention.triton_backend"
_FLASHINFER = "sglang.srt.layers.attention.flashinfer_mla_backend"
_MHA = "sglang.srt.layers.attention.trtllm_mha_backend"
_SPEC_INFO = "sglang.srt.speculative.spec_info"
_BATCH = "sglang.srt.model_executor.forward_batch_info"

_MAX_BS, _STEPS, _CONTEXT, _PAGE = 8, 3, 96, 32
_TOKENS = _STEPS + 1  # draft tokens per request
_ROWS = _MAX_BS * _TOKENS


#: Settings under which the engine keeps the lengths on the host, and what reads them there
_WAITING = (
    {"enable_two_batch_overlap": True},
    {"disable_piecewise_cuda_graph": False},
    {"speculative_algorithm": "NGRAM"},
    {"enable_multi_layer_eagle": True},
    {"enable_forward_pass_metrics": True},  # nosec B105
)


def _tree(lens: Any) -> tuple[Any, Any]:
    """Mask and positions of a chain after each request: a draft token sees all before it, and itself."""
    import torch

    rows = [[column <= n + token for column in range(n + _TOKENS)] for n in lens.tolist() for token in range(_TOKENS)]
    positions = [n + token for n in lens.tolist() for token in range(_TOKENS)]
    return torch.tensor([flag for row in rows for flag in row]), torch.tensor(positions)


def _graph_state(backend: Any) -> None:
    import torch

    backend.init_cuda_graph_state(_MAX_BS, _ROWS, kv_indices_buf=torch.zeros(_MAX_BS * _CONTEXT, dtype=torch.int32))


def _observation(error: float, seen: Any) -> Observation:
    return Observation(float(error), hashlib.sha256(repr(seen).encode()).hexdigest())


class Proof(proof.Proof):
    modules = may_lack = (_BACKEND, _OVERLAP, _UTILS, _TRITON, _FLASHINFER, _MHA, _SPEC_INFO, _BATCH)
    measure = "share of decode steps that wait for seq_lens on the host, or get a wrong tree"
    edited = ("0.5.13", "0.5.13.post1")
    edits = RECOGNISED | LOOKALIKES
    unrecognised = frozenset(LOOKALIKES)

    def prepare(self) -> None:
        if not hasattr(self.engine.get(_OVERLAP), "decide_needs_cpu_seq_lens"):
            raise NoSuchPath("no backend can opt out of seq_lens on the host")
        if self._has_relay():
            self.engine[_UTILS].sgl_build_tree_kernel_efficient = emulators.build_tree_kernel_efficient

    def scenario(self, seed: int) -> Observation:
        """The lengths of a running batch are relayed from step to step, and each step drafts; with CUDA graphs, and without."""
        if not self._has_relay():  # 0.5.14 and later build the tree in other ways: the decision alone is looked at
            return _observation(self._decision(self._backends()), [])
        return combine(*(self._serve(seed, graphs) for graphs in (True, False)))

    def control(self, seed: int) -> Observation:
        """Batches that have to wait, or never do: other backends, alone or beside, other settings, backends without a tree."""
        both = self._backends()
        foreign: list[Any] = [object.__new__(kind) for kind in self._other_kinds()]
        alone = [self._decision([other]) for other in foreign]
        beside = [self._decision([*both, other]) for other in foreign if getattr(other, "needs_cpu_seq_lens", True)]
        settings = [self._decision(both, **setting) for setting in _WAITING]
        answers = [alone, beside, settings, self._decision([]), self._decision([None])]
        waits = all(beside) and all(settings[: len(settings) if self._has_relay() else 0])
        silent = []
        if self._has_relay():
            silent = [self._backend(skip_prefill=True), self._backend(num_draft_tokens=None)]
            for backend in silent:
                _graph_state(backend)
            silent = [backend.get_verify_buffers_to_fill_after_draft() for backend in silent]
        return _observation(not waits or any(buffers != [None, None] for buffers in silent), [answers, silent])

    def sabotages(self) -> dict[str, Any]:
        from attnfix.patches.sglang.skip_seq_lens_sync import wrap

        trtllm, size = self.engine[_BACKEND], wrap._mask_size
        return {
            "the target's class is left out": replaced(trtllm.TRTLLMMLABackend, "needs_cpu_seq_lens", True),
            "the draft's class is left out": replaced(trtllm.TRTLLMMLAMultiStepDraftBackend, "needs_cpu_seq_lens", True),
            "the mask is short of the draft tokens": replaced(wrap, "_mask_size", lambda b, n: n * b.max_context_len),
            "the mask is too long": replaced(wrap, "_mask_size", lambda b, n: size(b, n) + 1),
            "positions are handed out, too": replaced(wrap, "_buffers", lambda mask: [mask, mask.new_zeros(_ROWS).long()]),
            "no mask is handed out": replaced(wrap, "_buffers", lambda mask: [None, None]),
            "the corrections do nothing": replaced(wrap, "_verifies_drafts", lambda backend: False),
        }

    def _serve(self, seed: int, graphs: bool) -> Observation:
        """Three decode steps of two to seven requests."""
        import torch

        draw = torch.Generator().manual_seed(seed)
        overlap, backends = self.engine[_OVERLAP], self._backends()
        target = backends[0]
        if graphs:
            for backend in (backends[0], backends[2]):
                _graph_state(backend)
        pool = SimpleNamespace(req_to_token=torch.zeros(_MAX_BS + 1, _CONTEXT, dtype=torch.int32))
        algorithm = self.engine[_SPEC_INFO].SpeculativeAlgorithm.EAGLE
        relay = overlap.FutureMap(torch.device("cpu"), algorithm, pool, needs_cpu_seq_lens=self._decision(backends))
        # Never all of them: a full batch's own buffers are as long as the graph's
        requests = int(torch.randint(2, _MAX_BS, (), generator=draw))
        slots = torch.randperm(_MAX_BS, generator=draw)[:requests] + 1
        lens = torch.randint(1, _CONTEXT - 3 * _TOKENS, (requests,), generator=draw)
        wrong, trees = 0, []
        for _ in range(3):
            relay.publish(slots, lens)
            batch = self._batch(slots, torch.randint(0, 1000, (requests,), generator=draw))
            relay.resolve_seq_lens_cpu(batch)
            waited = batch.seq_lens_cpu is not None
            drafted = torch.randint(0, 1000, (requests, _STEPS), generator=draw)
            verify = self._draft()(self._worker(target, drafted), batch)
            mask, positions = _tree(lens)
            fits = verify.custom_mask.dtype == torch.bool and torch.equal(verify.custom_mask[: len(mask)], mask)
            placed = torch.equal(verify.positions, positions) and torch.equal(batch.seq_lens, lens)
            # Where the host has no lengths, nothing may be allocated per step under CUDA graphs
            static = waited or not graphs or len(verify.custom_mask) == _ROWS * (_CONTEXT + _TOKENS)
            wrong += waited or not (fits and placed and static)
            trees.append([mask.tolist(), verify.positions.tolist(), verify.draft_token.tolist()])
            lens = lens + torch.randint(1, _TOKENS + 1, (requests,), generator=draw)
        return _observation(wrong / 3, trees)

    def _decision(self, backends: list[Any], **settings: Any) -> bool:
        args: dict[str, Any] = dict(
            enable_two_batch_overlap=False, disable_piecewise_cuda_graph=True, cuda_graph_config=None,
            speculative_algorithm="EAGLE", enable_multi_layer_eagle=False, enable_forward_pass_metrics=False,
        )  # fmt: skip
        overlap, server_args = self.engine[_OVERLAP], SimpleNamespace(**args | settings)
        if "server_args" in signature(overlap.decide_needs_cpu_seq_lens).parameters:
            return bool(overlap.decide_needs_cpu_seq_lens(server_args, backends))
        # 0.5.19 and later look the settings up
        overlap.get_exec, overlap.get_spec = lambda: SimpleNamespace(overlap=server_args), lambda: server_args
        return bool(overlap.decide_needs_cpu_seq_lens(backends))

    def _backends(self) -> list[Any]:
        """Those that a speculative step touches, as the worker lists them: verify, draft, draft extend."""
        return [self._backend(), object.__new__(self.engine[_BACKEND].TRTLLMMLAMultiStepDraftBackend), self._backend()]

    def _backend(self, skip_prefill: bool = False, num_draft_tokens: int | None = _TOKENS) -> Any:
        import torch

        backend = object.__new__(self.engine[_BACKEND].TRTLLMMLABackend)
        backend.__dict__.update(
            max_context_len=_CONTEXT, device="cpu", skip_prefill=skip_prefill, num_draft_tokens=num_draft_tokens,
            page_size=_PAGE, data_type=torch.bfloat16, num_q_heads=2, kv_cache_dim=576, decode_cuda_graph_kv_indices=None,
            q_indptr_decode=torch.arange(_MAX_BS + 1, dtype=torch.int32), kv_indptr=torch.zeros(_MAX_BS + 1, dtype=torch.int32),
        )  # fmt: skip
        if "cuda_graph_custom_mask" in code_of(self.engine[_BACKEND].TRTLLMMLABackend.__init__).co_names:
            backend.cuda_graph_custom_mask = None
        return backend

    def _worker(self, target: Any, drafted: Any) -> Any:
        """The draft worker, whose model has chosen `drafted`: [requests, steps]."""
        import torch

        requests = len(drafted)
        chosen = torch.zeros(requests, 0, dtype=torch.long), torch.arange(_STEPS).expand(requests, _STEPS), drafted
        return SimpleNamespace(
            req_to_token_pool=None, cuda_graph_runner=None, topk=1, speculative_num_steps=_STEPS,
            speculative_num_draft_tokens=_TOKENS, tree_mask_mode=self.engine[_UTILS].TreeMaskMode.FULL_MASK,
            draft_runner=SimpleNamespace(canary_manager=None), draft_forward=lambda forward_batch: chosen,
            draft_attn_backend=SimpleNamespace(init_forward_metadata=lambda forward_batch: None),
            target_worker=SimpleNamespace(model_runner=SimpleNamespace(attn_backend=target)),
        )  # fmt: skip

    @cache
    def _draft(self) -> Any:
        """The worker's own `draft`, out of its file: the module would bring in the whole scheduler. None where it has none."""
        path = Path(self.engine[_UTILS].__file__).with_name("eagle_worker_v2.py")
        node = find(ast.parse(path.read_text()), "EagleDraftWorker.draft") if path.is_file() else None
        if not isinstance(node, ast.FunctionDef):
            return None
        names: dict[str, Any] = {"contextlib": contextlib, "EagleVerifyInput": SimpleNamespace}
        names["build_tree_kernel_efficient"] = self.engine[_UTILS].build_tree_kernel_efficient
        return run_excerpt(path, node, **names)["draft"]

    def _batch(self, slots: Any, tokens: Any) -> Any:
        mode = self.engine[_BATCH].ForwardMode.DECODE
        forward = SimpleNamespace(forward_mode=mode, mark_forward_metadata_ready=lambda: None)
        draft = SimpleNamespace(
            future_indices=slots, bonus_tokens=tokens, prepare_for_v2_draft=lambda *context: (forward, False)
        )
        return SimpleNamespace(
            spec_info=draft, forward_mode=mode, req_pool_indices_cpu=slots, seq_lens_cpu=None, seq_lens_sum=None
        )

    def _other_kinds(self) -> list[type]:
        names = (
            (_TRITON, "TritonAttnBackend"), (_TRITON, "TritonMultiStepDraftBackend"),
            (_FLASHINFER, "FlashInferMLAAttnBackend"), (_FLASHINFER, "FlashInferMLAMultiStepDraftBackend"),
            (_MHA, "TRTLLMHAAttnBackend"), (_MHA, "TRTLLMHAAttnMultiStepDraftBackend"),
        )  # fmt: skip
        return [getattr(self.engine[module], name) for module, name in names if hasattr(self.engine.get(module), name)]

    def _has_relay(self) -> bool:
        """Whether steps hand their lengths on, and trees are built, as in 0.5.13."""
        names = getattr(getattr(self._draft(), "__code__", None), "co_names", ())
        return {"prepare_for_v2_draft", "get_verify_buffers_to_fill_after_draft"} <= set(names)
