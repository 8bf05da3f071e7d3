"""Correction of vllm.stale-draft-placeholders."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def left_out_before(target: Any, instance: Any, scheduler_output: Any) -> int:
    """How many requests have placeholders for drafts in a step, and were not sampled in the last one: none has drafts.

    Left alone: ranks of tensor parallelism, whose embedding masks a token of -1; pipelines, where the sampled token may be
    unknown, too; and models with recurrent states, which such a request would continue from another state than its own.
    """
    drafts = scheduler_output.scheduled_spec_decode_tokens
    if not drafts or not instance.use_async_scheduling:
        return 0
    sampled = instance.input_batch.prev_req_id_to_index or {}
    if drafts.keys() <= sampled.keys():  # as in most steps
        return 0
    parallel = instance.parallel_config
    if parallel.tensor_parallel_size > 1 or parallel.pipeline_parallel_size > 1 or instance.model_config.is_hybrid:
        return 0
    return len(drafts.keys() - sampled.keys())


def preprocess(call: Call, instance: Any, num_input_tokens: int) -> Any:
    """The model and the drafter read token 0 there. The sampler has its drafts already: it sees -1, and refuses them."""
    embeddable(instance.input_ids.gpu[:num_input_tokens])
    result = call()
    call.corrected(call.found)
    return result


def embeddable(tokens: Any) -> None:
    """tokens: int32 [tokens], changed in place."""
    tokens.clamp_(min=0)
