"""sglang.trtllm-mla-eager-lengths, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="sglang.trtllm-mla-eager-lengths",
    title="EAGLE and MTP turn into garbage where a step runs without a CUDA graph (TRT-LLM MLA)",
    symptom="The kernel reads 64-bit lengths as 32-bit ones: every second request of a batch has no context.",
    symptoms=(GARBAGE, SHARED_BATCH, SPECULATION),
    releases=(">=0.5.4.post3,<0.5.5",),
    code=("sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend.init_forward_metadata",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("verify backend", "trtllm_mla"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        AnyOf(Is("CUDA graphs", OFF), Unseen("batches above --cuda-graph-max-bs")),
    ),
    avoid="CUDA graphs for all batches: no --disable-cuda-graph, and --max-running-requests up to --cuda-graph-max-bs.",
)
