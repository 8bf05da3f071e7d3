"""sglang.flashinfer-mla-verify-sync, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

BUG = KnownBug(
    id="sglang.flashinfer-mla-verify-sync",
    title="Slower speculative decoding on FlashInfer with MLA: each verification waits for the GPU to plan",
    symptom="The GPU idles between steps of EAGLE or MTP, the more the smaller the batch is.",
    symptoms=(SLOW, SPECULATION),
    releases=(">=0.5.1,<0.5.18",),
    code=(
        "sglang.srt.layers.attention.flashinfer_mla_backend:FlashInferMLAAttnBackend.init_forward_metadata_replay_cuda_graph",
        "sglang.srt.layers.attention.flashinfer_mla_backend:FlashInferMLAAttnBackend._apply_cuda_graph_metadata",
    ),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("verify backend", "flashinfer"),
        Is("CUDA graphs", ON),
        Is("speculative decoding", ON),
    ),
    avoid="Choose another attention backend, such as trtllm_mla on Blackwell or fa3 on Hopper.",
)
