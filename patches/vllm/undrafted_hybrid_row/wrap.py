"""Correction of vllm.undrafted-hybrid-row."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from attnfix.compat.fix import Call

#: Told which rows are verifications. Mamba2's goes by the length of a row, and is told whether there are any
_BY_ROW, _BY_LENGTH = "GDNAttentionMetadataBuilder", "Mamba2AttentionMetadataBuilder"
#: Drafts of a row that has none. A row is a verification from 0 on, but builders leave it out where all rows have 0
DRAFTS = 1


def goes_on_without_drafts(
    target: Any,
    instance: Any,
    num_reqs: int,
    ubatch_slices: Any = None,
    logits_indices: Any = None,
    use_spec_decode: bool = False,
) -> Any:
    """(the rows of one token without drafts, bool [rows],) if one of them goes on behind accepted drafts; else None."""
    if not instance.num_spec_tokens or logits_indices is None or ubatch_slices is not None:  # a batch that nobody asked for
        return None
    behind = instance.input_batch.num_accepted_tokens_cpu[:num_reqs] > 1
    if not behind.any() or stays_as_it_is(instance):
        return None
    starts = instance.query_start_loc.np[: num_reqs + 1]
    new = starts[1:] - starts[:-1]
    rows = undrafted(instance, new, use_spec_decode)
    if not (rows & behind).any() or not can_verify(instance, new, rows, use_spec_decode):
        return None
    return (rows,)


def stays_as_it_is(runner: Any) -> bool:
    """Whether the host may not know yet how many drafts were accepted, or a layer leaves a state in each block."""
    return runner.use_async_scheduling or getattr(runner.cache_config, "mamba_cache_mode", "none") == "all"


def undrafted(runner: Any, new: Any, some_have_drafts: bool) -> Any:
    """bool [rows]: with one token, behind the prompt or the last one of it. new: scheduled tokens, int32 [rows].

    The last token of a prompt goes on from the first state, as a verification does behind one accepted token.
    """
    batch, count = runner.input_batch, len(new)
    computed = batch.num_computed_tokens_cpu[:count]
    ends = (computed > 0) & (batch.num_accepted_tokens_cpu[:count] == 1)
    rows = (new == 1) & (ends | (computed >= batch.num_prompt_tokens[:count]))
    return rows & (runner.num_decode_draft_tokens.np[:count] < 0) if some_have_drafts else rows


def can_verify(runner: Any, new: Any, rows: Any, some_have_drafts: bool) -> bool:
    """Whether the layers' builder makes verifications of these rows, and leaves all others as they are.

    Layers of Gated DeltaNet may read the gates of verifications from the front of the batch: so they have to stand there. No
    other row may have one token: 0.17 ends in a step of such a row and verifications. Mamba2's builder takes a short prefill
    for a verification, too, and where some rows have drafts it is right already.
    """
    verified = rows | (runner.num_decode_draft_tokens.np[: len(rows)] >= 0) if some_have_drafts else rows
    if not verified[: verified.sum()].all() or ((new == 1) & ~verified).any():
        return False
    builders = [group.get_metadata_builder(0) for groups in runner.attn_groups for group in groups]
    kinds = {type(builder).__name__: builder for builder in builders if getattr(builder, "use_spec_decode", False)}
    if _BY_ROW in kinds:
        return bool(verified.all()) or keeps_order(type(kinds[_BY_ROW]).build)
    short = (new > 1) & (new <= runner.uniform_decode_query_len)
    return _BY_LENGTH in kinds and not some_have_drafts and not short.any()


@cache
def keeps_order(build: Any) -> bool:
    """Whether verifications and other rows keep the order of their tokens: up to 0.12.0 they are sorted apart, not stably."""
    code = inspect.unwrap(build).__code__
    if "argsort" not in code.co_names:
        return True
    constants = code.co_consts  # keywords of a call are among them, alone or in a tuple
    return "stable" in constants or any("stable" in names for names in constants if isinstance(names, tuple))


def build_attention_metadata(call: Call, instance: Any, num_reqs: int, use_spec_decode: bool = False) -> Any:
    """The rows are told to be verifications of one token, which begin with the state behind the accepted drafts."""
    drafts = instance.num_decode_draft_tokens.np
    former = drafts.copy()
    if not use_spec_decode:  # of an earlier step
        drafts.fill(-1)
    (rows,) = call.found
    drafts[:num_reqs][rows] = DRAFTS
    try:
        result = call(use_spec_decode=True)
    finally:
        drafts[:] = former
    call.corrected(int(rows.sum()))
    return result
