"""sglang.fused-norm-yarn, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.doctor.gpus import NVIDIA
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

_LENGTHS = "max_position_embeddings / original_max_position_embeddings"

BUG = KnownBug(
    id="sglang.fused-norm-yarn",
    title="Qwen3 MoE takes another YaRN factor than the configured one with --enable-fused-qk-norm-rope",
    symptom="Answers to prompts beyond the original context length are bad: the kernel's factor is a ratio of two lengths.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.5.6.post1,<=0.5.23",),
    code=("sglang.srt.models.qwen3_moe:compute_yarn_parameters",),
    upstream=Upstream("huggingface/transformers", issue=38224),
    hits=AllOf(
        Is("architecture", "Qwen3MoeForCausalLM"),
        Given("--enable-fused-qk-norm-rope"),
        Is("GPU", NVIDIA),
        Not(Is("--device", "xpu", "cpu")),
        Unseen(f"whether YaRN is asked for with another factor than {_LENGTHS}"),
    ),
    avoid="Leave `--enable-fused-qk-norm-rope` out.",
)
