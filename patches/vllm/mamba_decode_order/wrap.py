"""Correction of vllm.mamba-decode-order.

Layers of Mamba2 take the first rows of a batch for decodes, up to the first one of a prompt, and all behind it for prompts. The
runner sorts rows with drafts to the front. Among the others, those as long as a verification come first, prompts too, and a
decode has one token.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.unpadded import kinds_of_states

#: Layers whose metadata goes by the order of the rows. That of short convolutions does, too, in a model of their own; beside
#: Gated DeltaNet it has another builder, which does not
_BY_ORDER = "MAMBA2"


def sorts_decodes_with_prompts(target: Any, instance: Any, scheduler_output: Any, dummy_run: bool) -> bool:
    """Whether the batch may have such rows, of a model that goes by them: a decode without drafts, of a server with drafts."""
    if dummy_run or instance.decode_query_len == 1 or instance.pcp_manager is not None:  # which shares out a prompt's rows
        return False
    drafting, all_of_them = scheduler_output.scheduled_spec_decode_tokens, scheduler_output.num_scheduled_tokens
    return len(drafting) < len(all_of_them) and goes_by_order(instance)


def gather_batch_req_state(call: Call, instance: Any, scheduler_output: Any) -> Any:
    """Returns (what is known of the batch's requests, tokens of each where all are decodes of one length).

    The rows are in another order, nothing else. All ranks find the same one: of the step they know the same, and of the groups
    of layers, too, though a stage of a pipeline may have none of their layers.
    """
    batch, uniform = result = call()
    if batch is None or not batch.has_prefill:
        return result
    verified = sum(map(bool, scheduler_output.scheduled_spec_decode_tokens.values()))
    order = decodes_first(batch, verified, instance.decode_query_len)
    if order is None:
        return result
    call.corrected()
    return reordered(batch, order), uniform


def goes_by_order(runner: Any) -> bool:
    return _BY_ORDER in kinds_of_states(runner)


def decodes_first(batch: Any, verified: int, longest: int) -> Any:
    """[rows], the order that puts decodes before the first prompt, or None where no decode stands behind one. verified: rows
    with drafts, which are the first ones; longest: tokens of a verification.

    A prompt whose last token alone is left is a decode to the layers. One that was padded with drafts is before all decodes,
    and if it has no state yet, no order helps them: vllm.padded-one-token-prompt does.
    """
    import numpy as np

    new, prompt, begun = batch.num_scheduled_tokens, batch.is_prefilling_np, batch.num_computed_prefill_tokens_np > 0
    prompts = np.flatnonzero((prompt & ~((new == 1) & begun))[verified:])
    if not len(prompts) or (prompt & ~begun)[:verified].any():
        return None
    first = verified + prompts[0]
    decodes = ~prompt & (new <= longest)
    decodes[:first] = False
    if not decodes.any():
        return None
    rows = np.arange(len(new))
    return np.concatenate([rows[:first], rows[decodes], rows[first:][~decodes[first:]]])


def reordered(batch: Any, order: Any) -> Any:
    """The batch with its rows in this order: all that it has of each request."""
    rows = {name: value[order] for name, value in batch._asdict().items() if getattr(value, "shape", None) == order.shape}
    return batch._replace(req_ids=[batch.req_ids[row] for row in order], **rows)
