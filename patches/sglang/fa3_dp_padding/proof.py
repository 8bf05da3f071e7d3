"""Proof of sglang.fa3-dp-padding: layers attend to padded batches of prompts, as `RadixAttention` has them.

The engine pads the batch. Its rows of padding are to be zero; memory that nobody has written is NaN here. Spared: batches
without padding, decodes, and verifications.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from attnfix.patches.lab.proof import Observation, replaced
from attnfix.patches.lab.sglang import flash_attention, paged
from attnfix.patches.lab.sglang.engine import module
from attnfix.patches.lab.sglang.paged import (
    FULL,
    HEADS,
    LATENT,
    TRITON,
    TRTLLM_MHA,
    FlashAttention,
    case,
    decode,
    prefill,
    verify,
)

from .wrap import clear

RANKS = 4  # that share the attention of a request
_BATCH, _LAYER = "sglang.srt.model_executor.forward_batch_info", "sglang.srt.layers.radix_attention"
_CONTEXT = "sglang.srt.model_executor.forward_context"
_TOKENS = "num_token_non_padded_cpu", "global_num_token_non_padded_cpu"


@contextmanager
def unwritten_is_nan():
    import torch

    former = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # new memory is filled with NaN then
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(former[0], warn_only=former[1])


def attend(q: Any, *args: Any, out: Any = None, **launch: Any) -> Any:
    """The kernel, which leaves rows behind the last request as they are."""
    result = flash_attention.paged(q, *args, **launch)
    written, rows = int(launch["cu_seqlens_q"][-1]), result[0] if isinstance(result, tuple) else result
    if out is None:
        rows[written:] = float("nan")
        return result
    out[:written] = rows[:written]
    return out


class Server(paged.Server):
    """One rank of several that share the attention of its batches."""

    def _batch(self, step: paged.Step, size: int) -> Any:
        batch = super()._batch(step, size)
        batch.attn_backend = self.backend
        vars(self.runner)["attn_backend"] = self.backend
        tokens = len(batch.input_ids)
        vars(batch).update({name: tokens for name in _TOKENS if hasattr(batch, name)}, lora_ids=[None] * size)
        if step.mode == "EXTEND":
            self._pad(batch, -(-tokens // RANKS) * RANKS)
        return batch

    def _pad(self, batch: Any, tokens: int) -> None:
        """As the ranks agreed on, once each had told how many it has."""
        import torch

        if hasattr(batch, "_pad_inputs_to_size"):
            return batch._pad_inputs_to_size(self.runner, tokens, batch.batch_size)
        counts, make = torch.tensor([tokens]), torch.tensor
        vars(batch).update(
            global_num_tokens_cpu=[tokens], global_num_tokens_for_logprob_cpu=[tokens], global_num_tokens_gpu=counts,
            is_extend_in_batch=True,
        )  # fmt: skip
        with replaced(torch, "tensor", lambda values, pin_memory=False, **given: make(values, **given)):
            batch.prepare_mlp_sync_batch(self.runner)

    def _attend(self, layer_id: int, step: paged.Step, batch: Any) -> Observation:
        seen = super()._attend(layer_id, step, batch)
        left = step.mode == "EXTEND" and self.out[sum(step.new) :].any()  # NaN counts, too
        return Observation(float("inf"), seen.bits) if left else seen

    def _forward(self, forward: Any, layer_id: int, batch: Any, q: Any, k: Any = None, v: Any = None) -> Any:
        given: dict[str, Any] = {}
        count = len(q)
        if self.launch.latent:
            given["q_rope"], q, k, v = q[..., LATENT:].contiguous(), q[..., :LATENT].contiguous(), None, None
        context = module(_CONTEXT.removeprefix("sglang.srt."))
        if context and hasattr(context, "set_forward_context"):
            context.set_forward_context(context.ForwardContext(attn_backend=self.backend))
        with paged.on_device(), unwritten_is_nan():
            out = self.layers[layer_id](q.flatten(1), k, v, batch, save_kv_cache=k is not None, **given)
        self.out = out.view(count, HEADS, -1)
        return self.out


SHORT, LONG = ((0, 30), (20, 5)), ((11, 0, 7), (3, 1, 9))  # tokens of each request: cached, new


class Proof(FlashAttention):
    modules = (flash_attention.BACKEND, _BATCH, _LAYER, _CONTEXT)
    may_lack = (_CONTEXT,)
    bug = (
        case(prefill(*SHORT), prefill(*LONG)),
        case(prefill((0,), (1,)), prefill(*SHORT), page_size=4, kv_dtype="fp8_e4m3"),
        case(prefill((9, 4), (2, 3), layers=(FULL,)), latent=True),
        case(prefill(*SHORT), prefill(*LONG), backend=TRITON),
        case(prefill((0, 0), (4, 5)), page_size=4, backend=TRITON),
        case(prefill(*SHORT), prefill(*LONG), page_size=16, backend=TRTLLM_MHA),
    )
    spared = (
        case(prefill((0, 30), (20, 4)), decode((20, 34)), decode((9,), graph=True)),
        case(verify((25, 3, 9), layers=(FULL,)), topk=2),
        case(prefill((0, 30), (20, 4)), decode((20, 34), layers=(FULL,)), backend=TRITON),
        case(prefill((0, 30), (20, 4)), page_size=16, backend=TRTLLM_MHA),
    )
    broken = {
        "the correction does nothing": (clear, lambda real, rows, used: None),
        "one row is missed": (clear, lambda real, rows, used: real(rows, used + 1)),
        "a request's row is cleared": (clear, lambda real, rows, used: real(rows, used - 1)),
    }

    def server(self, launch: paged.Launch, seed: int, of: type[paged.Server] = Server) -> paged.Server:
        return super().server(launch, seed, of)

    def prepare(self) -> None:
        super().prepare()
        flash_attention.use(self.engine[flash_attention.BACKEND], attend)
        paged.use_trtllm_mha(self.engine["sglang.srt.layers.attention.trtllm_mha_backend"])
