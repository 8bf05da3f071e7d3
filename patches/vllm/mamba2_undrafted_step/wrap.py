"""Correction of vllm.mamba2-undrafted-step."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call

_BUILDER = "Mamba2AttentionMetadataBuilder"


def decodes_without_drafts(
    target: Any,
    instance: Any,
    num_reqs: int,
    ubatch_slices: Any = None,
    logits_indices: Any = None,
    use_spec_decode: bool = False,
) -> Any:
    """The builders of Mamba2, if nobody has drafts in a step of a server with drafts, and its first row has one token."""
    if use_spec_decode or not instance.num_spec_tokens or logits_indices is None or ubatch_slices is not None:
        return None
    starts = instance.query_start_loc.np[: num_reqs + 1]
    new = starts[1:] - starts[:-1]
    if new[0] != 1 or instance.cache_config.mamba_cache_mode == "all" or not can_verify(instance, new):
        return None
    builders = [group.get_metadata_builder(0) for groups in instance.attn_groups for group in groups]
    return tuple(builder for builder in builders if type(builder).__name__ == _BUILDER)


def can_verify(runner: Any, new: Any) -> bool:
    """Whether each row goes on from the right state where rows of one token are verifications, up to the first longer one.

    No row of a prompt that begins is one. What follows a longer row counts as a prefill, and goes on from the first state. With
    asynchronous scheduling, numbers of accepted drafts are on their way from the GPU: the builder would wait for them, too.
    new: scheduled tokens, int32 [rows].
    """
    batch, rows = runner.input_batch, len(new)
    front = rows if (new == 1).all() else int((new != 1).argmax())
    if not (batch.num_computed_tokens_cpu[:front] > 0).all():
        return False
    if front < rows and (copied := getattr(runner, "num_accepted_tokens_event", None)) is not None:  # from 0.18.0
        copied.synchronize()
    return bool((batch.num_accepted_tokens_cpu[front:rows] == 1).all())


def build_attention_metadata(call: Call, instance: Any) -> Any:
    """Told that there are drafts, a builder gets numbers of accepted ones. With a threshold of one token, rows of one token are
    verifications, and short prefills are none."""
    former = [builder.reorder_batch_threshold for builder in call.found]
    for builder in call.found:
        builder.reorder_batch_threshold = threshold()
    try:
        result = call(use_spec_decode=True)
    finally:
        for builder, tokens in zip(call.found, former):
            builder.reorder_batch_threshold = tokens
    call.corrected()
    return result


def threshold() -> int:
    """Tokens of a row up to which it is a verification."""
    return 1
