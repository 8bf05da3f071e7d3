"""vllm.rocm-encoder-window, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

#: Up to 0.18.1, what takes the backend
_OPTIONS = (
    "--attention-backend",
    "--attention-config.backend",
    "--attention-config.use_prefill_decode_attention",
    "$VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION",
)

BUG = KnownBug(
    id="vllm.rocm-encoder-window",
    title="Embeddings of long texts are wrong on AMD: encoders with a window see all tokens ahead (ModernBERT)",
    symptom="On AMD, embeddings and scores of ModernBERT and EmbeddingGemma differ from TRITON_ATTN for long texts.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.17.0,<0.26.0",),
    code=("vllm.v1.attention.backends.rocm_attn:RocmAttentionImpl.__init__",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", "AMD"),
        AnyOf(
            Is("architecture", "ModernBertModel", "ModernBertForSequenceClassification", "ColBERTModernBertModel"),
            Is("architecture", "ModernBertForTokenClassification", "OpenAIPrivacyFilterForTokenClassification"),
            AllOf(Is("architecture", "Gemma3TextModel"), Unseen("`use_bidirectional_attention` in config.json")),
        ),
        Is("attention backend", "ROCM_ATTN", "ROCM_AITER_UNIFIED_ATTN"),
        AnyOf(
            Since("0.19.0"),
            *map(Given, _OPTIONS),
        ),
        Unseen("texts longer than the window"),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`.",
)
