"""sglang.gemma3-text-bidirectional, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

BUG = KnownBug(
    id="sglang.gemma3-text-bidirectional",
    title="Gemma 3 reads text prompts without a causal mask on triton with neither chunks nor CUDA graphs",
    symptom="Answers to prompts without images differ from those of other backends: prompt tokens see later ones.",
    symptoms=(BACKEND, GARBAGE),
    releases=(">=0.5.9,<0.5.17",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=10707),
    hits=AllOf(
        Is("architecture", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
        Is("prefill backend", "triton"),
        Is("CUDA graphs", OFF),
        AnyOf(
            Not(Since("0.5.14")),
            Given("--disable-cuda-graph"),
            Given("--disable-prefill-cuda-graph"),
            Is("--cuda-graph-backend-prefill", "disabled"),
            Unseen("whether prefill has no CUDA graphs, either"),
        ),
        Is("--chunked-prefill-size", "-1"),
    ),
    avoid="Leave CUDA graphs on, or set a --chunked-prefill-size above the longest prompt.",
)
