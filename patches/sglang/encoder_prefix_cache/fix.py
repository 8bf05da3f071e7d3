"""sglang.encoder-prefix-cache, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, SHARED_BATCH

from . import wrap

_SRT = "sglang.srt"

FIX = Fix(
    id="sglang.encoder-prefix-cache",
    title="Wrong embeddings and scores of BERT-like models from the second text on: prefixes are cached",
    symptom=(
        "A text that begins as an earlier one takes the keys of its first tokens from there, and pools a later token. The "
        "last text of a full batch is cut, and pools the first token behind the cut. Both happen by default. XLM-RoBERTa "
        "dies of an assertion."
    ),
    symptoms=(CACHED_PREFIX, SHARED_BATCH, DIES),
    cause=(
        "The radix cache and chunked prefill take it that a token sees none behind it. In an encoder, each token sees the "
        "whole text. Its key belongs to that text alone, and to no part of it."
    ),
    correction=(
        "Before the first text is queued, what is on of the two is switched off in an encoder's server, and with the cache an "
        "order of texts that goes by it. A text that does not fit into what is left of a batch waits for the next batch. "
        "Batches get no larger, but for a text that is larger alone. Servers with HiCache, LMCache, FlexKV or another special "
        "radix cache stay as they are. Decoders keep their cached prefixes."
    ),
    upstream=Upstream("sgl-project/sglang", pull=4887),
    hardware="any GPU (BERT-like models)",
    default=True,
    default_reason="silent wrong output by default in every release; red to green with the real kernels of an H200",
    targets=(
        Target(
            wrap.handle_embedding_request,
            needed=wrap.reuses_or_splits,
            paths=(f"{_SRT}.managers.scheduler:Scheduler.handle_embedding_request",),
        ),
    ),
    # The way of a text into a batch; what is switched off, and what ends a text then
    witnesses=(
        f"{_SRT}.managers.scheduler:Scheduler._handle_embedding_request",
        f"{_SRT}.managers.scheduler:Scheduler.init_chunked_prefill",
        f"{_SRT}.managers.schedule_batch:Req.init_next_round_input",
        f"{_SRT}.managers.schedule_policy:PrefillAdder",
        f"{_SRT}.managers.schedule_policy:SchedulePolicy.__init__",
        f"{_SRT}.mem_cache.radix_cache:RadixCache",
        f"{_SRT}.mem_cache.unified_radix_cache:UnifiedRadixCache",
        f"{_SRT}.managers.schedule_policy:match_prefix_for_req",
        f"{_SRT}.mem_cache.common:match_kv_cache",
        f"{_SRT}.mem_cache.common:release_kv_cache",
        f"{_SRT}.configs.embedding_model_spec:resolve_embedding_model_spec",
        f"{_SRT}.configs.embedding_model_spec:_native_embedding_spec",
    ),
    cost=(
        "A look at three attributes for each text. An encoder computes the tokens that it took from the cache, wrongly, and "
        "keeps no KV of texts that have ended. A text longer than a chunk takes the memory of a batch of its length."
    ),
    avoid="Set `--disable-radix-cache`, and `--chunked-prefill-size -1`, too.",
    expect=(
        "On one replica, embed a text, then one with the same first words: stock, the second embedding differs from that "
        "of a fresh server. One correction is counted for each scheduler. No text reports cached tokens."
    ),
    ranks_alike=True,  # how much of a text a batch holds follows from it
    stays_out=Is("special radix cache", ON),
    hits=AllOf(Is("architecture", *sorted(wrap.ENCODERS)), Is("cached prefix", ON)),
)
