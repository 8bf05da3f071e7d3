"""Proof of sglang.mha-draft-extend-routing: a draft extend of spec v2 on a DP rank that is padded after planning.

Three requests of unequal length extend by all draft tokens, however many were accepted. Up to 0.5.12.post1 this runs eagerly:
the engine plans the rank's own requests, then pads queries, keys and values to the rows of the largest rank. From 0.5.13 it
runs as a CUDA graph: the padded batch is planned, with metadata made for it. Real: the backend's metadata (its Triton kernels
in the interpreter) and `forward_extend`. Emulated: both attention kernels, the KV pool, the padding. Upstream's issue does not
name the read that went astray; that padded rows bring one about follows from the engine's and FlashInfer's code.

No release has the fault: it is put back by an edit of the source (edits.py), as upstream wrote it and in other spellings.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, cumulative, observe, replaced
from attnfix.patches.lab.sglang import trtllm_mha

from . import wrap
from .edits import EDITED, EDITS, UNRECOGNISED

_BACKEND = trtllm_mha.BACKEND
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_CONTEXT = "sglang.srt.model_executor.forward_context"

_HEADS, _KV_HEADS, _DIM, _PAGE, _PAGES = 4, 2, 64, 16, 6  # pages per request
_PREFIX = [45, 7, 70]
_DRAFT = 4  # new tokens per request in a target verify and in a draft extend of spec v2
_ACCEPTED = [2, 4, 3]  # new tokens per request in a draft extend of spec v1 and in a plain extend
_PADDED = 5  # requests of the largest DP rank, or of the captured graph
_decode: Any = emulators.PagedDecode()
_context: Any = emulators.PagedContext()


def _plan_draft_extend(backend: Any, batch: Any) -> None:
    """As the release runs it: eagerly, for its own requests; or as a CUDA graph, captured and replayed for padded ones."""
    import torch

    if not hasattr(backend, "init_forward_metadata_out_graph"):
        backend.init_forward_metadata(batch)
        return
    missing = _PADDED - batch.batch_size
    pad = lambda values, value=0: torch.nn.functional.pad(values, (0, missing), value=value)  # noqa: E731
    fill = backend.get_cuda_graph_seq_len_fill_value()
    batch.__dict__.update(
        batch_size=_PADDED, req_pool_indices=pad(batch.req_pool_indices), seq_lens=pad(batch.seq_lens, fill),
        seq_lens_cpu=pad(batch.seq_lens_cpu, fill), extend_seq_lens=pad(batch.extend_seq_lens, _DRAFT),
        extend_seq_lens_cpu=batch.extend_seq_lens_cpu + [_DRAFT] * missing, positions=torch.zeros(_PADDED * _DRAFT),
        out_cache_loc=torch.nn.functional.pad(batch.out_cache_loc, (0, missing * _DRAFT)),
    )  # fmt: skip
    lens, batch.seq_lens = batch.seq_lens, torch.full_like(batch.seq_lens, fill)
    backend.init_cuda_graph_state(_PADDED, _PADDED * _DRAFT)
    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    batch.seq_lens = lens
    backend.init_forward_metadata_out_graph(batch)
    if hasattr(backend, "init_forward_metadata_in_graph"):
        backend.init_forward_metadata_in_graph(batch)


class _Pool:
    """A KV pool of one layer: [slots, KV heads, d]. `drawn` is what it held before this batch.

    It looks at the caller's own `batch` while the layer runs: `modes` are those it sees there.
    """

    def __init__(self, drawn: Any):
        self.drawn, self.kv = drawn, drawn.clone()
        self.batch: Any = None
        self.modes: set[Any] = set()

    def set_kv_buffer(self, layer: Any, where: Any, k: Any, v: Any, *scales: Any) -> None:
        slots = getattr(where, "loc", where).long()
        self.kv[0, slots], self.kv[1, slots] = k, v

    def get_kv_buffer(self, layer_id: int) -> tuple:
        self.modes.add(self.batch.forward_mode)
        return self.kv[0], self.kv[1]


class Proof(proof.Proof):
    modules = (_BACKEND, _BATCH, _CONTEXT)
    may_lack = (_CONTEXT,)
    measure = "relative error against float64; infinite where another mode leaves its kernel or the caller's batch is changed"
    edited, edits, unrecognised = EDITED, EDITS, UNRECOGNISED

    def prepare(self) -> None:
        if not hasattr(self._mode(), "DRAFT_EXTEND_V2"):
            raise NoSuchPath("there is no draft extend of spec v2")
        self.engine[_BACKEND].flashinfer = SimpleNamespace(
            decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache=_decode),
            prefill=SimpleNamespace(trtllm_batch_context_with_kv_cache=_context),
        )

    def scenario(self, seed: int) -> Observation:
        return combine(self._run(seed, "DRAFT_EXTEND_V2", [_DRAFT] * len(_PREFIX)), *self._others(seed))

    def control(self, seed: int) -> Observation:
        return combine(*self._others(seed))

    def _others(self, seed: int) -> list[Observation]:
        """The other modes, unpadded, each on the kernel that is its own in every release."""
        names = code_of(self._backend_class().forward_extend).co_names
        verify = _decode if any("decode" in name for name in names) else _context  # up to 0.5.5.post3 there is one kernel alone
        runs = [
            self._run(seed, "TARGET_VERIFY", [_DRAFT] * len(_PREFIX), verify),
            self._run(seed, "EXTEND", _ACCEPTED, _context),
        ]
        if hasattr(self._mode(), "DRAFT_EXTEND"):  # up to 0.5.13.post1
            runs.append(self._run(seed, "DRAFT_EXTEND", _ACCEPTED, _context))
        return runs

    def sabotages(self) -> dict[str, Any]:
        def in_place(forward_batch: Any) -> Any:
            forward_batch.forward_mode = self._mode().EXTEND
            return forward_batch

        def as_verify(forward_batch: Any) -> Any:
            view = real(forward_batch)
            view.forward_mode = self._mode().TARGET_VERIFY
            return view

        real = wrap.as_plain_extend
        return {
            "the correction does nothing": replaced(wrap, "as_plain_extend", lambda forward_batch: forward_batch),
            "the mode still asks for the decode kernel": replaced(wrap, "as_plain_extend", as_verify),
            "the caller's batch is changed": replaced(wrap, "as_plain_extend", in_place),
            "target verify is rerouted, too": replaced(wrap, "misrouted", lambda mode: True),
        }

    def _run(self, seed: int, mode: str, lens: list[int], kernel: Any = None) -> Observation:
        """One layer of one batch. With a `kernel`, that one and no other must be called; without, the batch is padded."""
        import torch

        draw = torch.Generator().manual_seed(seed)
        tensor = lambda *shape: torch.randn(*shape, generator=draw).bfloat16()  # noqa: E731
        requests, rows = len(lens), sum(lens)
        padded = rows if kernel else _DRAFT * _PADDED
        pages = torch.randperm(requests * _PAGES, generator=draw).view(requests, _PAGES) + 1  # page 0 is where padding goes
        slots = (pages[:, :, None] * _PAGE + torch.arange(_PAGE)).view(requests, -1).int()
        pool = _Pool(tensor(2, (requests * _PAGES + 1) * _PAGE, _KV_HEADS, _DIM))
        q, k, v = tensor(padded, _HEADS, _DIM), tensor(padded, _KV_HEADS, _DIM), tensor(padded, _KV_HEADS, _DIM)
        batch, backend, layer = self._batch(mode, lens, slots, pool), self._backend(slots, pool), self._layer()
        if _CONTEXT in self.engine:  # where later releases find the pool
            self.engine[_CONTEXT].set_forward_context(self.engine[_CONTEXT].ForwardContext(attn_backend=backend))

        if kernel:
            backend.init_forward_metadata(batch)
        else:
            _plan_draft_extend(backend, batch)
            batch.out_cache_loc = torch.nn.functional.pad(batch.out_cache_loc, (0, padded - len(batch.out_cache_loc)))
        pool.batch, before, calls = batch, dict(vars(batch)), (_decode.calls, _context.calls)
        out = backend.forward_extend(q.flatten(1), k, v, layer, batch).view(padded, _HEADS, _DIM)[:rows]
        called = [one for one, n in zip((_decode, _context), calls) if one.calls > n]

        at, reference = cumulative(lens).tolist(), []
        for b, prefix in enumerate(_PREFIX):
            new, old = slice(at[b], at[b + 1]), slots[b, :prefix].long()
            keys, values = torch.cat([pool.drawn[0, old], k[new]]), torch.cat([pool.drawn[1, old], v[new]])
            keys, values = (x.repeat_interleave(_HEADS // _KV_HEADS, 1) for x in (keys, values))
            reference.append(emulators.attention(q[new], keys, values, layer.scaling, causal=True)[0])
        seen = observe(out, torch.cat(reference))
        same_batch = vars(batch).keys() == before.keys() and all(vars(batch)[name] is value for name, value in before.items())
        same_mode, same_kernel = pool.modes == {self._mode()[mode]}, kernel is None or called == [kernel]
        return seen if same_batch and same_mode and same_kernel else Observation(math.inf, seen.bits)

    def _batch(self, mode: str, lens: list[int], slots: Any, pool: _Pool) -> Any:
        import torch

        batch, requests = object.__new__(self.engine[_BATCH].ForwardBatch), len(lens)
        total = [n + m for n, m in zip(_PREFIX, lens)]
        cached = _PREFIX if mode == "TARGET_VERIFY" else total  # verify plans from what is cached, extends from what will be
        accepted = torch.tensor(_ACCEPTED, dtype=torch.int32)
        batch.__dict__.update(
            forward_mode=self._mode()[mode], batch_size=requests, input_ids=torch.zeros(sum(lens), dtype=torch.int64),
            seq_lens=torch.tensor(cached), seq_lens_cpu=torch.tensor(cached), seq_lens_sum=sum(cached),
            extend_seq_lens=torch.tensor(lens, dtype=torch.int32), extend_seq_lens_cpu=lens,
            extend_prefix_lens=torch.tensor(_PREFIX, dtype=torch.int32), extend_prefix_lens_cpu=_PREFIX,
            req_pool_indices=torch.arange(requests), req_to_token_pool=SimpleNamespace(req_to_token=slots),
            token_to_kv_pool=pool, out_cache_loc=torch.cat([slots[b, n:m] for b, (n, m) in enumerate(zip(_PREFIX, total))]),
            out_cache_loc_swa=None, out_cache_loc_is_physical=True, encoder_lens=None, kv_loc_plan=None, _attn_output=None,
            spec_info=None if mode == "EXTEND" else SimpleNamespace(
                num_tokens_per_req=_DRAFT, num_accept_tokens=accepted, num_accept_tokens_cpu=_ACCEPTED,
                ragged_verify_layout=None,
            ),
        )  # fmt: skip
        return batch

    def _backend(self, slots: Any, pool: _Pool) -> Any:
        return trtllm_mha.backend(self.engine[_BACKEND], slots, pool, _PAGE, speculative_num_draft_tokens=_DRAFT)

    def _layer(self) -> Any:
        return trtllm_mha.layer(self.engine[_BACKEND], _HEADS, _KV_HEADS, _DIM)

    def _mode(self) -> Any:
        return self.engine[_BATCH].ForwardMode

    def _backend_class(self) -> Any:
        return self.engine[_BACKEND].TRTLLMHAAttnBackend
