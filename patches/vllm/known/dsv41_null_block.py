"""vllm.dsv41-null-block, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS

BUG = KnownBug(
    id="vllm.dsv41-null-block",
    title="DeepSeek-V4.1 answers nothing or garbage with CUDA graphs on RTX 50, RTX PRO and GB10",
    symptom="Answers are empty or garbled with CUDA graphs, and right with `--enforce-eager`.",
    symptoms=(GRAPHS, GARBAGE),
    releases=(">=0.30.0,<0.32.0",),
    code=("vllm.models.deepseek_v41.compressor:_ring_slot_mapping_kernel",),
    upstream=Upstream("vllm-project/vllm", issue=57156),
    hits=AllOf(
        Is("architecture", "DeepseekV41ForCausalLM"),
        Is("compute capability", 120, 121),
        Not(Given("--enforce-eager")),
        Unseen("whether what a dummy batch writes to the null block reads as NaN"),
    ),
    avoid="Start with `--enforce-eager`.",
)
