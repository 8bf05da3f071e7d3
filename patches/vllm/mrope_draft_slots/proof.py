"""Proof of vllm.mrope-draft-slots: where a drafter writes the keys of its drafts, and at which positions, behind images.

Real: the runner and its drafter, by their own constructors from a config with M-RoPE; all that `propose_draft_token_ids` runs,
with Triton's kernels interpreted; the builder of the layer's metadata. Emulated: the batch, whose requests have tokens and a
position, and the drafter's model, which looks at what it gets. Spared: text alone, and a single draft.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import DENSE, Worker
from attnfix.patches.lab.vllm.model_runner_v1 import RUNNER, streams
from attnfix.patches.lab.vllm.models import QWEN3_NEXT, folder_of

from . import wrap

_BASE, _EAGLE = "vllm.v1.spec_decode.llm_base_proposer", "vllm.v1.spec_decode.eagle"
_BACKEND, _LIMIT = "flash_attn.FlashAttentionBackend", 1024
_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12]}
_PADDING = 3


class Row(NamedTuple):
    """A request: tokens in the cache, new ones in the step, and by how much the positions of the last ones differ from their
    indices. drafts: how many of the new tokens are; rejected: how many of these."""

    context: int
    new: int
    delta: int = 0
    drafts: int = 0
    rejected: int = 0


def decode(context: int, drafts: int = 0, rejected: int = 0, delta: int = 0) -> Row:
    return Row(context, 1 + drafts, delta, drafts, rejected)


class Case(NamedTuple):
    """batches: steps in a row. padded: rows of a graph stand behind the batch. plain: the drafter has no M-RoPE."""

    batches: tuple[tuple[Row, ...], ...]
    drafts: int = 3
    page_size: int = 16
    padded: bool = False
    plain: bool = False


IMAGE, VIDEO = -240, 45
_PROMPTS = (Row(0, 277, IMAGE), Row(16, 30), Row(0, 260, -17))
_DECODES = (decode(277, 2, 1, IMAGE), decode(46, 2, 2), decode(31, 2, 0, VIDEO), decode(263, 0, 0, -40), Row(40, 60, -30))
_TEXT = ((Row(0, 33), Row(15, 20)), (decode(33, 2, 2), decode(35, 2), Row(35, 1)))
#: The last draft is beyond the limit of the context: it has no slot
_END = ((decode(_LIMIT - 3, 0, 0, IMAGE), decode(277, 2, 1, IMAGE)),)


class Proof(Cases):
    modules = (RUNNER, _EAGLE, _BASE)
    may_lack = (_BASE,)
    kernel = "interpreted"
    measure = "share of drafts with a wrong slot or position"
    bug = (
        Case((_PROMPTS, _DECODES)),
        Case((_DECODES, _PROMPTS), drafts=5, page_size=64),
        Case((_DECODES[:1], _DECODES), drafts=2, page_size=32, padded=True),
        Case(_END, drafts=4),
        Case((_PROMPTS, _DECODES), plain=True),
    )
    spared = (
        Case(_TEXT),
        Case(_TEXT, drafts=4, page_size=64, padded=True),
        Case((_PROMPTS, _DECODES), drafts=1),
        Case(_TEXT, plain=True),
    )
    broken = {
        "positions stay what slots are found by": (wrap.indices, lambda real, seq_lens, positions: positions - 1),
        "slots are those of the token before": (wrap.indices, lambda real, *args: real(*args) - 1),
        "positions become indices": (wrap.moved, lambda real, positions, index, limit: index),
    }

    def __init__(self) -> None:
        kernels.stand_in()
        super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        with streams():
            server = Server(case)
            for batch in case.batches:
                server.step(batch, seed)
        return Observation(server.wrong / max(server.asked, 1), hashlib.sha256(repr(server.seen).encode()).hexdigest())


class Server:
    """The runner when it asks its drafter, and the drafter's model."""

    def __init__(self, case: Case):
        import torch

        self.case, self.drafts, self.wrong, self.asked = case, case.drafts, 0, 0
        self.seen: list[Any] = []
        model = {**QWEN3_NEXT, "rope_scaling": _ROPE, "rope_parameters": _ROPE, "max_position_embeddings": _LIMIT}
        drafter = {"method": "mtp", "num_speculative_tokens": case.drafts}
        if case.plain:
            config = {**DENSE, "architectures": ["EagleLlamaForCausalLM"], "max_position_embeddings": _LIMIT}
            drafter |= {"method": "eagle", "model": folder_of(config)}
        self.worker = Worker(
            model, backend=_BACKEND, page_size=case.page_size, context=_LIMIT, cache={"enable_prefix_caching": False},
            speculative=drafter,
        )  # fmt: skip
        with self.worker as worker:
            layer = worker.layer()
            self.name, builder, spec = worker.name_of(layer), worker.builder([layer]), worker.spec(layer)
            self.runner = import_module(RUNNER).GPUModelRunner(worker.config, torch.device("cpu"))
        self.drafter = drafter = self.runner.drafter
        self.runner.model, drafter.model, drafter.attn_metadata_builder = object(), self, builder
        drafter.attn_layer_names, drafter._draft_attn_layer_names, drafter.indexer_layer_names = [self.name], {self.name}, []
        group = SimpleNamespace(
            layer_names=[self.name], kv_cache_spec=spec, kv_cache_group_id=0, get_metadata_builder=lambda *_: builder,
            build_metadata_for_drafting=builder.build_for_drafting,
        )  # fmt: skip
        drafter.draft_attn_groups, drafter.kv_cache_gid = [group], 0
        if getattr(drafter, "block_size", 0) == -1:
            drafter.block_size = spec.block_size
        if case.padded and hasattr(drafter, "_determine_batch_execution_and_padding"):
            drafter._determine_batch_execution_and_padding = self._padded

    def _padded(self, count: int) -> tuple[Any, int, Any]:
        modes: Any = import_module("vllm.config.compilation").CUDAGraphMode
        return modes.NONE, count + _PADDING, None

    def step(self, batch: tuple[Row, ...], seed: int) -> None:
        import numpy as np
        import torch

        self.batch, self.passes = batch, 0
        names, runner = [f"request-{at}" for at in range(len(batch))], self.runner
        runner.requests = {
            name: SimpleNamespace(mrope_position_delta=row.delta, get_token_id=lambda at: 1) for name, row in zip(names, batch)
        }
        runner.input_batch = SimpleNamespace(
            req_ids=names, num_reqs=len(batch), vocab_size=128, num_tokens_no_spec=np.ones(9, int)
        )
        pages = -(-(_LIMIT + 8) // self.case.page_size)
        order = torch.randperm(len(batch) * pages, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
        self.table = order.view(len(batch), pages)
        with self.worker as worker:
            metadata = worker.batch([row.context for row in batch], [row.new for row in batch], block_table_tensor=self.table)
            metadata.seq_lens = metadata.seq_lens.as_subclass(torch.Tensor)
            positions = torch.cat([torch.arange(row.context, row.context + row.new) + row.delta for row in batch])
            count = len(positions)
            runner.mrope_positions.gpu[:, :count] = positions
            sampled = torch.full((len(batch), 1 + max(row.drafts for row in batch)), -1, dtype=torch.int32)
            for row, ids in zip(batch, sampled):
                ids[: 1 + row.drafts - row.rejected] = 1
            drafts = [row.drafts for row in batch]
            verified = SimpleNamespace(num_draft_tokens=drafts, cu_num_draft_tokens=torch.tensor(drafts).cumsum(0).int())
            given = dict(
                scheduler_output=SimpleNamespace(total_num_scheduled_tokens=count, num_spec_tokens_to_schedule=self.drafts),
                sampled_token_ids=sampled, sampling_metadata=SimpleNamespace(all_greedy=True, temperature=None),
                hidden_states=torch.zeros(count, self.drafter.hidden_size, dtype=self.drafter.dtype), sample_hidden_states=None,
                aux_hidden_states=None, spec_decode_metadata=verified if any(drafts) else None, common_attn_metadata=metadata,
                slot_mappings=None,
            )  # fmt: skip
            propose = runner.propose_draft_token_ids
            known = signature(propose).parameters
            self.seen.append(propose(**{name: given[name] for name in given if name in known}).tolist())

    def __call__(self, input_ids: Any, positions: Any, hidden_states: Any, inputs_embeds: Any = None) -> Any:
        """One pass of the model: its slots are in the forward context, up to 0.14.1 in the metadata there."""
        context: Any = import_module("vllm.forward_context").get_forward_context()
        of_layer = (getattr(context, "slot_mapping", None) or context.attn_metadata)[self.name]
        slots = getattr(of_layer, "slot_mapping", of_layer).tolist()
        self.seen.append((slots, positions.tolist()))
        if self.passes:
            self._look(slots, positions.view(-1, positions.shape[-1]).T.tolist())
        self.passes += 1
        return (hidden_states, hidden_states) if self.case.plain else hidden_states

    def _look(self, slots: list[int], positions: list[list[int]]) -> None:
        size = self.case.page_size
        for row, pages, slot, position in zip(self.batch, self.table.tolist(), slots, positions):
            at = row.context + row.new - row.rejected + self.passes - 1
            right = pages[at // size] * size + at % size if at < _LIMIT else -1
            self.wrong += slot != right or (at < _LIMIT and set(position) != {at + row.delta})
            self.asked += 1
        self.wrong += any(slot != -1 for slot in slots[len(self.batch) :])

    def compute_logits(self, hidden_states: Any, *more: Any) -> Any:
        return hidden_states[:, :8]
