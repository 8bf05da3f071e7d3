"""sglang.dsv4-sparse-cp, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT, PARALLEL

_FLAGS = ("--enable-dsa-prefill-context-parallel", "--enable-nsa-prefill-context-parallel", "--enable-prefill-cp")

BUG = KnownBug(
    id="sglang.dsv4-sparse-cp",
    title="Garbage from DeepSeek V4 with context parallelism and large prefill chunks",
    symptom="A rank takes its share of a prompt for the first tokens of the prompt, and attends to keys of other positions.",
    symptoms=(PARALLEL, LONG_PROMPT, GARBAGE),
    releases=(">=0.5.13,<0.5.21",),
    code=("sglang.srt.layers.attention.deepseek_v4_backend:DeepseekV4AttnBackend._forward_prefill_sparse",),
    upstream=Upstream("sgl-project/sglang", pull=27276),
    hits=AllOf(
        Is("GPU", "NVIDIA"),
        Is("architecture", "DeepseekV4ForCausalLM"),
        AnyOf(*map(Given, _FLAGS)),
        AnyOf(
            AllOf(Not(Since("0.5.15")), Given("$SGLANG_OPT_FLASHMLA_SPARSE_PREFILL")),
            Above("--chunked-prefill-size", 23346),
            Is("--chunked-prefill-size", "-1"),
        ),
        Unseen("prompts of which a rank gets more than 11673 tokens at once, or any prompt with the sparse prefill of 0.5.13"),
    ),
    avoid="Set `--chunked-prefill-size 16384`, and leave SGLANG_OPT_FLASHMLA_SPARSE_PREFILL alone.",
)
