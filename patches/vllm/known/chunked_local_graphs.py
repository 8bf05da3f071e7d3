"""vllm.chunked-local-graphs, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS

_FULL = AnyOf(
    Is("--compilation-config.cudagraph_mode", "FULL", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"),
    Given("--compilation-config.full_cuda_graph"),
)
BUG = KnownBug(
    id="vllm.chunked-local-graphs",
    title="Llama 4 answers garbage with full CUDA graphs: graphs do not follow the chunks of a step",
    symptom=(
        "With full graphs, layers of chunked attention read lengths and blocks of another step; in 0.10.0, the whole context."
    ),
    symptoms=(GRAPHS, GARBAGE),
    releases=(">=0.10.0,<0.11.0",),
    code=(
        "vllm.attention.layers.chunked_local_attention:create_chunked_local_attention_backend",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._dummy_run",
    ),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("architecture", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        Is("engine core", "V1"),
        Not(Is("kernels of the attention backend", "FlashInfer")),  # its wrappers copy blocks and lengths
        Not(Given("--enforce-eager")),
        _FULL,
        AnyOf(Is("speculative decoding", OFF), Unseen("a backend that captures steps with drafts")),
    ),
    avoid="Leave `cudagraph_mode` and `full_cuda_graph` out: graphs are piecewise by default.",
)
