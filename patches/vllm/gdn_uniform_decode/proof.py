"""Proof of vllm.gdn-uniform-decode: prompts of K + 1 tokens, alone and beside a decode, and the steps that build on them.

Real: `_determine_batch_execution_and_padding` of the V1 runner, and `build` and `build_for_cudagraph_capture` of Gated
DeltaNet's metadata. Emulated: the dispatcher, which has a full graph for every uniform batch; the graph, whose replay runs the
layer again with the metadata of capture; and the layer, a gated linear recurrence that reads and writes states where the
metadata says, and skips the null block, as the engine's kernels do.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.proof import Observation, combine, cumulative, observe, replaced
from attnfix.patches.lab.vllm.mla_prefill import unpinned

_RUNNER, _GDN, _CONTEXT = "vllm.v1.worker.gpu_model_runner", "vllm.v1.attention.backends.gdn_attn", "vllm.forward_context"

_K, _D, _ROOM, _DECAY = 3, 16, 3, 0.9  # drafts of a request; size of a head; requests; what is kept of a state per token
_FULL, _EAGER = "FULL", "PIECEWISE"


class _Request:
    """Tokens that are computed, and those that are known; the right state in float64, and how many drafts were accepted."""

    def __init__(self, slot: int):
        self.slot, self.computed, self.known, self.accepted = slot, 0, 0, 1
        self.state: Any = 0.0


class _Server:
    """One layer's states, and what the runner keeps between steps. Block 0 is the null block."""

    def __init__(self, modules: dict[str, Any], seed: int):
        import torch

        self.modules, self.draw = modules, torch.Generator().manual_seed(seed)
        self.states = torch.randn(1 + _ROOM * (_K + 1), _D, _D, generator=self.draw).double()  # of requests long gone
        self.q, self.k, self.v, self.out = (torch.zeros(4 * _ROOM * _K, _D).double() for _ in range(4))
        self.starts, self.seq_lens = torch.zeros(_ROOM + 1, dtype=torch.int32), torch.zeros(_ROOM, dtype=torch.int32)
        self.pages = torch.zeros(_ROOM, _K + 1, dtype=torch.int32)
        self.accepted = torch.ones(_ROOM, dtype=torch.int32)
        self.builder, self.graphs = _builder(modules[_GDN]), {}
        for size in range(1, _ROOM + 1):
            self._fill([(None, _K + 1)] * size)
            batch = self._batch([(None, _K + 1)] * size)
            with unpinned():
                metadata = self.builder.build_for_cudagraph_capture(batch)
            self.graphs[size] = graph = Graph()
            graph.recorded(self._layer)(metadata)

    def step(self, requests: dict[_Request, int | None]) -> Observation:
        """Requests with so many prompt tokens, or None for a decode step with K drafts; how right the outputs are."""
        import torch

        rows = [(request, new or _K + 1) for request, new in requests.items()]
        drafts = torch.tensor([-1 if new else _K for new in requests.values()], dtype=torch.int32)
        for request, new in requests.items():
            request.known = max(request.known, request.computed) + (new or 0)
            if not new:
                request.known = request.computed + 1  # the token that was sampled; its drafts are not known
        for x in (self.q, self.k, self.v):
            x.copy_(torch.randn(x.shape, generator=self.draw) * _D**-0.5)
        self._fill(rows)
        mode = _mode(self.modules, rows)
        decodes = bool((drafts >= 0).any())
        with unpinned():
            metadata = self.builder.build(0, self._batch(rows), **self._of_drafts(drafts) if decodes else {})
        if mode == _FULL:
            self.graphs[len(rows)].replay()
        else:
            self._layer(metadata)
        reference = self._reference(requests)
        return observe(self.out[: len(reference)].clone(), reference)

    def _of_drafts(self, drafts: Any) -> dict:
        return {"num_accepted_tokens": self.accepted[: len(drafts)], "num_decode_draft_tokens_cpu": drafts}

    def _fill(self, rows: list) -> None:
        import torch

        self.starts[: len(rows) + 1] = cumulative(tokens for _, tokens in rows)
        self.pages.zero_()
        for at, (request, tokens) in enumerate(rows):
            self.seq_lens[at] = tokens + (request.computed if request else 0)
            if request:
                self.pages[at] = 1 + request.slot * (_K + 1) + torch.arange(_K + 1)
                self.accepted[at] = request.accepted

    def _batch(self, rows: list) -> Any:
        import torch

        prefilling = [bool(request and request.computed < request.known - 1) for request, _ in rows]
        starts, lens = self.starts[: len(rows) + 1], self.seq_lens[: len(rows)].clone()
        computed = lens - starts.diff()
        return _Batch(
            num_reqs=len(rows), num_actual_tokens=int(starts[-1]), max_query_len=int(starts.diff().max()),
            max_seq_len=int(lens.max()), query_start_loc=starts, query_start_loc_cpu=starts.clone(), seq_lens=lens,
            seq_lens_cpu=lens, seq_lens_cpu_upper_bound=lens, num_computed_tokens_cpu=computed, slot_mapping=None,
            compute_num_computed_tokens=lambda: computed, block_table_tensor=self.pages[: len(rows)],
            is_prefilling=torch.tensor(prefilling), causal=True,
        )  # fmt: skip

    def _layer(self, metadata: Any) -> None:
        """The layer over all tokens of a batch: verified drafts where its metadata says so, else prefills or decodes."""
        spec = metadata.spec_sequence_masks is not None
        if spec:
            starts, tokens = metadata.spec_query_start_loc.tolist(), metadata.spec_token_indx.tolist()
            for at, kept in enumerate(metadata.num_accepted_tokens.tolist()[: len(starts) - 1]):
                blocks = metadata.spec_state_indices_tensor[at].tolist()
                self._run(tokens[starts[at] : starts[at + 1]], blocks[kept - 1], blocks)
        if metadata.num_prefills or metadata.num_decodes:
            starts = metadata.non_spec_query_start_loc.tolist()
            tokens = metadata.non_spec_token_indx.tolist() if spec else list(range(starts[-1]))
            initial = metadata.has_initial_state
            for at, block in enumerate(metadata.non_spec_state_indices_tensor.tolist()[: len(starts) - 1]):
                read = 0 if initial is not None and not initial[at] else block
                mine = tokens[starts[at] : starts[at + 1]]
                self._run(mine, read, [0] * (len(mine) - 1) + [block])

    def _run(self, tokens: list[int], read: int, written: list[int]) -> None:
        """Tokens of one request from the state of block `read`, whose states go to the blocks `written`."""
        import torch

        state = self.states[read].clone() if read > 0 else torch.zeros(_D, _D).double()
        for token, block in zip(tokens, written):
            state = _DECAY * state + self.k[token, :, None] * self.v[token]
            self.out[token] = self.q[token] @ state
            if block > 0:
                self.states[block] = state

    def _reference(self, requests: dict[_Request, int | None]) -> Any:
        """The right outputs; and which drafts of each request are accepted, which the next step builds on."""
        import torch

        at, outs = 0, []
        for request, new in requests.items():
            after, state = [], request.state
            for token in range(at, at + (new or _K + 1)):
                state = _DECAY * state + self.k[token, :, None] * self.v[token]
                after.append(state)
                outs.append(self.q[token] @ state)
            at += len(after)
            request.accepted = 1 if new else int(torch.randint(1, _K + 2, (1,), generator=self.draw))
            request.state = after[-1] if new else after[request.accepted - 1]
            request.computed += new or request.accepted
        return torch.stack(outs)


class _Batch(SimpleNamespace):
    """CommonAttentionMetadata, as far as the builder asks."""

    def replace(self, **fields: Any) -> Any:
        other = copy(self)
        vars(other).update(fields)
        return other


def _mode(modules: dict[str, Any], rows: list) -> str:
    """What the runner decides for a batch."""
    import numpy as np

    scheduled = np.array([tokens for _, tokens in rows], dtype=np.int32)
    columns = [[getattr(request, name) for request, _ in rows] for name in ("computed", "known")]
    computed, known = (np.array(column, dtype=np.int32) for column in columns)
    runner = object.__new__(modules[_RUNNER].GPUModelRunner)
    off = SimpleNamespace(enable_sequence_parallelism=False, enable_sp=False)
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_size=1, data_parallel_rank=0, tensor_parallel_size=1),
        observability_config=SimpleNamespace(cudagraph_metrics=False),
        compilation_config=SimpleNamespace(pass_config=off, cudagraph_mode=modules[_RUNNER].CUDAGraphMode.FULL_AND_PIECEWISE),
    )  # fmt: skip
    runner.__dict__.update(
        uniform_decode_query_len=_K + 1, num_spec_tokens=_K, speculative_config=SimpleNamespace(num_speculative_tokens=_K),
        vllm_config=config, parallel_config=config.parallel_config, compilation_config=config.compilation_config,
        model_config=SimpleNamespace(is_hybrid=True, is_encoder_decoder=False),
        cudagraph_dispatcher=SimpleNamespace(dispatch=partial(_dispatch, modules[_CONTEXT].BatchDescriptor)),
        input_batch=SimpleNamespace(
            num_reqs=len(rows), lora_id_to_lora_request={}, num_computed_tokens_cpu=computed, num_tokens_no_spec=known,
            num_prompt_tokens=known,
        ),
    )  # fmt: skip
    return runner._determine_batch_execution_and_padding(
        num_tokens=int(scheduled.sum()), num_reqs=len(rows), num_scheduled_tokens_np=scheduled,
        max_num_scheduled_tokens=int(scheduled.max()), use_cascade_attn=False,
    )[0]  # fmt: skip


def _dispatch(descriptor: Any, num_tokens: int, uniform_decode: bool = False, **others: Any) -> tuple:
    return _FULL if uniform_decode else _EAGER, descriptor(num_tokens)


def _builder(module: Any) -> Any:
    """The metadata builder with what its `__init__` keeps for K drafts and full graphs."""
    import torch

    builder = object.__new__(module.GDNAttentionMetadataBuilder)
    rows = _ROOM * (_K + 1)
    cache = SimpleNamespace(mamba_cache_mode="none", enable_prefix_caching=False)
    numbers = lambda *shape: torch.zeros(*shape, dtype=torch.int32)  # noqa: E731
    builder.__dict__.update(
        vllm_config=SimpleNamespace(cache_config=cache, pad_for_cudagraph=lambda tokens: tokens),
        kv_cache_spec=SimpleNamespace(block_size=1 << 20, num_speculative_blocks=_K), device=torch.device("cpu"),
        num_spec=_K, use_spec_decode=True, use_full_cuda_graph=True, decode_cudagraph_max_bs=rows,
        spec_state_indices_tensor=numbers(rows, _K + 1), non_spec_state_indices_tensor=numbers(rows),
        spec_sequence_masks=numbers(rows).bool(), spec_token_indx=numbers(rows * (_K + 1)),
        non_spec_token_indx=numbers(rows * (_K + 1)), spec_query_start_loc=numbers(rows + 1),
        non_spec_query_start_loc=numbers(rows + 1), num_accepted_tokens=numbers(rows),
        gdn_prefill_backend="triton", checkpoint_builder=SimpleNamespace(build=lambda *_: None),
        plan_flashinfer_checkpoints=False,
    )  # fmt: skip
    return builder


class Proof(proof.Proof):
    modules = (_RUNNER, _GDN, _CONTEXT)

    def scenario(self, seed: int) -> Observation:
        """A prompt of K + 1 tokens; one beside a decode; and the rest of a longer prompt."""
        server = _Server(self.engine, seed)
        first, second, third = (_Request(slot) for slot in range(_ROOM))
        seen = [
            server.step({first: _K + 1}),
            server.step({first: None, second: _K + 1}),
            server.step({first: None, second: None}),
        ]
        seen += [server.step({third: 2 * _K}), server.step({third: _K + 1}), server.step({first: None, third: None})]
        return combine(*seen)

    def control(self, seed: int) -> Observation:
        """Prompts of other lengths: alone, beside a decode, and in two parts; each with decodes through the graph behind it."""
        server = _Server(self.engine, seed)
        first, second, third = (_Request(slot) for slot in range(_ROOM))
        seen = [server.step({first: _K + 2}), server.step({first: None, second: _K}), server.step({first: None, second: None})]
        seen += [server.step({third: 2 * _K}), server.step({third: _K + 2}), server.step({first: None, third: None})]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        def alone(input_batch: Any, scheduled: Any) -> bool:
            return len(scheduled) == 1 and real(input_batch, scheduled)

        def fresh(input_batch: Any, scheduled: Any) -> bool:
            return bool((input_batch.num_computed_tokens_cpu[: len(scheduled)] == 0).any())

        real = wrap.prefills
        return {
            "no batch is a prefill": replaced(wrap, "prefills", lambda input_batch, scheduled: False),
            "a prefill beside a decode is missed": replaced(wrap, "prefills", alone),
            "the rest of a prompt is missed": replaced(wrap, "prefills", fresh),
        }
