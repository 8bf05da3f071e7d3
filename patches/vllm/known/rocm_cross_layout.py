"""vllm.rocm-cross-layout, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.rocm-cross-layout",
    title="Whisper transcribes garbage: self- and cross-attention lay out the same cache differently (AMD)",
    symptom="Self-attention alone has ROCM_ATTN: a block means other bytes to each, they overwrite another, and words repeat.",
    symptoms=(GARBAGE,),
    releases=(">=0.19.0,<0.25.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._reshape_kv_cache_tensors",),
    upstream=Upstream("vllm-project/vllm", pull=47035),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is(
            "architecture",
            "WhisperForConditionalGeneration",
            "NemotronParseForConditionalGeneration",
            "CohereAsrForConditionalGeneration",
            "FireRedLIDForConditionalGeneration",
        ),
        Not(Given("--attention-backend")),
        Not(Given("--attention-config.backend")),
        Not(AllOf(Since("0.23.0"), Is("KV connector", ON))),
        # Below 0.23.0 AITER's backend, the first for cross-attention where it is installed, has the layout of ROCM_ATTN
        AnyOf(Since("0.23.0"), Unseen("a GPU other than Instinct, or no AITER installed")),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`.",
)
