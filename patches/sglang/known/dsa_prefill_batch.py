"""sglang.dsa-prefill-batch, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="sglang.dsa-prefill-batch",
    title="Wrong answers of DeepSeek V3.2 to long prompts that share a prefill with others",
    symptom="All prompts of a prefill but the first pick their tokens by scores that nobody computed, or of other prompts.",
    symptoms=(LONG_PROMPT, SHARED_BATCH),
    releases=(">=0.5.3,<0.5.5.post2",),
    code=("sglang.srt.layers.attention.nsa.nsa_indexer:Indexer._get_topk_ragged",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        Is("GPU", "NVIDIA"),
        Unseen("whether prompts of more than 2048 tokens share a prefill"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.5.post2.",
)
