"""vllm.dsv32-indexer-rotary, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="vllm.dsv32-indexer-rotary",
    title="DeepSeek-V3.2 selects worse context: its indexer rotates keys in the wrong style",
    symptom="Answers to prompts of more than 2048 tokens are worse than the reference's: other tokens are selected.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.11.0,<0.12.0",),
    code=("vllm.model_executor.models.deepseek_v2:DeepseekV2MLAAttention.__init__",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("attention", "sparse MLA"), Unseen("requests of more than 2048 tokens")),
    avoid="Nothing within the release avoids it; take release 0.12.0.",
)
