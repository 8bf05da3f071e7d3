"""vllm.rocm-cross-attention, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

BUG = KnownBug(
    id="vllm.rocm-cross-attention",
    title="Beam search transcribes wrongly (Whisper on AMD GPUs)",
    symptom="Beam search gives other words than greedy decoding: cross-attention takes cached KV of the encoder for new one.",
    symptoms=(BACKEND,),
    releases=(">=0.17.0,<0.19.0",),
    code=("vllm.v1.attention.backends.rocm_attn:RocmAttentionBackend.supports_attn_type",),
    upstream=Upstream("vllm-project/vllm", pull=38450),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("architecture", "WhisperForConditionalGeneration", "NemotronParseForConditionalGeneration"),
        AnyOf(
            Is("attention backend", "ROCM_ATTN"),
            AllOf(Since("0.18.0"), Is("attention backend", "ROCM_AITER_FA")),
        ),
        Unseen("requests with beam search"),
    ),
    avoid="Start with --attention-backend TRITON_ATTN.",
)
