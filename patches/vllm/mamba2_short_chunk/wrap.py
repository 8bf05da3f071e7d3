"""Correction of vllm.mamba2-short-chunk.

To layers of Mamba2, the first rows of a batch are verifications, up to the first one of a prompt. All behind it are prompts.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound
from attnfix.patches.vllm.shared.unpadded import kinds_of_states

#: Left at a builder while it builds: how many rows are verifications
_VERIFICATIONS = "attnfix_verifications"


def has_a_short_prompt(target: Any, instance: Any, scheduler_output: Any) -> bool:
    """Whether a row of several tokens has no drafts in a step with drafts."""
    drafts, new = scheduler_output.scheduled_spec_decode_tokens, scheduler_output.num_scheduled_tokens
    if not drafts or len(drafts) == len(new) or not any(count > 1 and name not in drafts for name, count in new.items()):
        return False
    return has_mamba2(instance)


def has_mamba2(runner: Any) -> bool:
    return any(kind.upper() == "MAMBA2" for kind in kinds_of_states(runner))


def may_reorder_batch(call: Call, instance: Any, scheduler_output: Any) -> None:
    """Moves verifications, and rows of one token, before all others, which keep their order.

    The copy of numbers of accepted drafts has to land before rows are moved: the runner waits for it in this step, too.
    """
    call()
    batch = instance.input_batch
    order = verifications_first(batch, scheduler_output)
    if order == batch.req_ids:
        return
    if (copied := getattr(instance, "num_accepted_tokens_event", None)) is not None:  # from 0.18.0
        copied.synchronize()
    for row, name in enumerate(order):
        if (other := batch.req_id_to_index[name]) != row:
            batch.swap_states(row, other)
    call.corrected()


def verifications_first(batch: Any, step: Any) -> list[str]:
    """The batch's requests in their order, those first whose state the layers may take for a decode's."""
    drafts, new, verified = step.scheduled_spec_decode_tokens, step.num_scheduled_tokens, []
    for row, name in enumerate(batch.req_ids):
        computed = batch.num_computed_tokens_cpu[row]
        if computed > 0 and (new[name] == 1 or (name in drafts and computed >= batch.num_prompt_tokens[row])):
            verified.append(name)
    leading = set(verified)
    return verified + [name for name in batch.req_ids if name not in leading]


def has_the_shape_of_verifications(
    target: Any, instance: Any, num_tokens: int, num_reqs: int, num_scheduled_tokens_np: Any, max_num_scheduled_tokens: int,
    force_eager: bool, force_uniform_decode: bool | None,
) -> bool:  # fmt: skip
    """Whether a full graph of verifications may be replayed, and a row has nothing but known tokens.

    num_scheduled_tokens_np: int32 [requests]. The last known token of a decode is the only one that it has to compute.
    """
    longest = max_num_scheduled_tokens
    if longest <= 1 or longest != instance.uniform_decode_query_len or num_tokens != longest * num_reqs:
        return False
    if force_eager or force_uniform_decode is not None:
        return False
    return has_a_prompt(instance.input_batch, num_scheduled_tokens_np) and has_mamba2(instance)


def has_a_prompt(batch: Any, scheduled: Any) -> bool:
    rows = len(scheduled)
    return bool((batch.num_tokens_no_spec[:rows] - batch.num_computed_tokens_cpu[:rows] >= scheduled).any())


def determine_batch_execution_and_padding(call: Call, instance: Any) -> Any:
    """The engine's own argument says that the batch is no decode step."""
    call.corrected()
    return call(force_uniform_decode=False)


def verifications(
    target: Any, instance: Any, num_accepted_tokens: Any = None, num_decode_draft_tokens_cpu: Any = None,
    common_attn_metadata: Any = None,
) -> Any:  # fmt: skip
    """(how many rows stand before the first prompt,) if stock takes that for a verification.

    num_decode_draft_tokens_cpu: int32 [rows], drafts of each, or -1. Rows behind the batch's own have no tokens. Both arguments
    of a step with drafts are among the engine's keywords, so they stand before the one that it names.
    """
    if num_accepted_tokens is None or num_decode_draft_tokens_cpu is None:
        return None
    starts = common_attn_metadata.query_start_loc_cpu.numpy()
    new, drafts = starts[1:] - starts[:-1], num_decode_draft_tokens_cpu.numpy()
    computed = common_attn_metadata._num_computed_tokens_cpu.numpy()
    longest = instance.reorder_batch_threshold
    prompts = (new > 0) & (computed == 0) | (new > 1) & (drafts < 0) | (new > longest)
    if not prompts.any():
        return None
    first = int(prompts.argmax())
    # The runner has its rows in this order, unless the other half of the correction is gone
    if new[first] > longest or (drafts[first:] > 0).any():
        return None
    return (first,)


def build(call: Call, instance: Any) -> Any:
    setattr(instance, _VERIFICATIONS, call.found)
    try:
        result = call()
    finally:
        delattr(instance, _VERIFICATIONS)
    call.corrected()
    return result


def is_told(target: Any, instance: Any) -> Any:
    return getattr(instance, _VERIFICATIONS, None)


def compute_common_metadata(call: Call, instance: Any) -> Any:
    """The engine's own code, which splits the rows at the first prompt."""
    function, (count,) = call.target.function, call.found
    stock = function.__globals__["split_decodes_and_prefills"]

    def split(common_attn_metadata: Any, **options: Any) -> tuple[int, int, int, int]:
        return split_at(count, common_attn_metadata)

    return call.run(rebound(function, split_decodes_and_prefills=call.guard(split, stock)))


def split_at(count: int, batch: Any) -> tuple[int, int, int, int]:
    """(decodes, prefills, tokens of decodes, tokens of prefills)"""
    tokens = int(batch.query_start_loc_cpu[count])
    return count, batch.num_reqs - count, tokens, batch.num_actual_tokens - tokens
