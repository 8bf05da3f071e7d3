"""sglang.hybrid-chunk-metadata, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

from . import wrap

_HYBRID = "sglang.srt.layers.attention.hybrid_attn_backend:HybridAttnBackend"
_LINEAR = "sglang.srt.layers.attention.hybrid_linear_attn_backend:HybridLinearAttnBackend"
_MODULE = "sglang.srt.layers.attention.flashinfer_mla_backend"

FIX = Fix(
    id="sglang.hybrid-chunk-metadata",
    title="Crash or garbage on a prefix hit with two attention backends",
    symptom=(
        "The server dies of `list index out of range` or `q.shape[0] does not match qo_indptr[-1]` once a prompt meets cached "
        "tokens. Or it answers with garbage, since FlashInfer runs with the plan of an earlier batch. Models are hit that have "
        "MLA and different attention backends for prefill (flashinfer) and decode, or linear attention layers (Kimi-Linear, "
        "Ring)."
    ),
    symptoms=(DIES, CACHED_PREFIX),
    cause=(
        "The model has the chunks of a cached prefix planned only if the backend it sees has `init_mha_chunk_metadata`. The "
        "hybrid backends, which stand before the one that attends, do not have it: FlashInfer's wrappers are never planned."
    ),
    correction="A hybrid backend gets that method, which hands over to the backend that attends, as upstream's does.",
    upstream=Upstream("sgl-project/sglang", pull=27316),
    hardware="any GPU (MLA with --prefill-attention-backend flashinfer and another one for decode, or linear attention layers)",
    default=True,
    default_reason="crash or silent wrong output; fixed upstream in the same way",
    targets=(
        Target(wrap.init_hybrid, paths=(f"{_HYBRID}.__init__",)),
        Target(wrap.init_hybrid_linear, paths=(f"{_LINEAR}.__init__",)),
    ),
    independent=True,  # a model without linear attention loads one of them alone
    # Whether the hybrid backends plan, whom they hand over to, and what is planned and run
    witnesses=(
        f"{_HYBRID}.init_mha_chunk_metadata",
        f"{_HYBRID}._select_backend",
        f"{_HYBRID}.forward_extend",
        f"{_LINEAR}.init_mha_chunk_metadata",
        f"{_LINEAR}.forward",
        f"{_LINEAR}.forward_extend",
        f"{_MODULE}:FlashInferMLAAttnBackend.init_mha_chunk_metadata",
        f"{_MODULE}:FlashInferMLAAttnBackend.forward_extend",
        f"{_MODULE}:FlashInferMhaChunkKVRunner",
        "sglang.srt.layers.attention.base_attn_backend:AttentionBackend.forward",
        "sglang.srt.models.deepseek_v2:DeepseekV2AttentionMLA.forward_normal_chunked_kv_core",
        "sglang.srt.models.deepseek_common.attention_forward_methods.forward_mha"
        ":DeepseekMHAForwardMixin.forward_normal_chunked_kv_core",
    ),
    cost="The plan that a backend alone makes, too: once per batch with cached tokens.",
    avoid=(
        "Start with `--disable-chunked-prefix-cache`: cached prefixes go through absorbed MLA, which needs no chunk "
        "metadata; prefill behind long prefixes slows."
    ),
    expect=(
        "On one replica with two attention backends, send a long prompt twice: the second answer is as good as the first, and "
        "equal to that of a server with the prefill backend alone."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("cached prefix", ON),
        Is("chunked prefix cache", ON),
        Is("prefill backend", "flashinfer", "flashmla", "cutlass_mla"),
        Is("hybrid backend", ON),
    ),
)
