"""vllm.chunked-local-graphs, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS

BUG = KnownBug(
    id="vllm.chunked-local-graphs",
    title="Llama 4 answers garbage with full CUDA graphs: graphs keep the chunks of the step that was captured",
    symptom=(
        "With full graphs, layers of chunked attention read lengths and blocks of another step. Piecewise graphs are right."
    ),
    symptoms=(
        GRAPHS,
        GARBAGE,
    ),
    releases=(">=0.10.1,<0.11.0",),
    code=("vllm.attention.layers.chunked_local_attention:create_chunked_local_attention_backend",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("architecture", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        Is("engine core", "V1"),
        Not(Given("--enforce-eager")),
        AnyOf(
            Is("--compilation-config.cudagraph_mode", "FULL", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"),
            Given("--compilation-config.full_cuda_graph"),
        ),
        AnyOf(Is("speculative decoding", OFF), Unseen("a backend that captures steps with drafts")),
    ),
    avoid="Leave `cudagraph_mode` out: the default is PIECEWISE.",
)
