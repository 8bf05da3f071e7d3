"""vllm.mrope-gptj-eager, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, IMAGES

BUG = KnownBug(
    id="vllm.mrope-gptj-eager",
    title="GLM-4.1V and GLM-OCR answer garbage in eager mode: the kernel of M-RoPE pairs other dimensions",
    symptom="With `--enforce-eager` text is garbled or repeats itself; compiled, the same model is right.",
    symptoms=(GARBAGE, IMAGES),
    releases=(">=0.10.1,<0.27.0",),
    code=("vllm.model_executor.layers.rotary_embedding.mrope:MRotaryEmbedding.forward_cuda",),
    upstream=Upstream("vllm-project/vllm", issue=49290, pull=49323),
    hits=AllOf(
        Is("architecture", "Glm4vForConditionalGeneration", "GlmOcrForConditionalGeneration"),
        AnyOf(
            Is("--enforce-eager", ON),
            Is("--compilation-config.mode", "0", "NONE"),
            Is("--compilation-config.level", "0"),
            AllOf(Given("--compilation-config.custom_ops"), Unseen("`all` or `+rotary_embedding` in custom_ops")),
            Is("--optimization-level", "0"),
        ),
    ),
    avoid="Start without `--enforce-eager` and with the default compilation mode.",
)
