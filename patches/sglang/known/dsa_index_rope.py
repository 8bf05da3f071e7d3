"""sglang.dsa-index-rope, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="sglang.dsa-index-rope",
    title="Worse answers of DeepSeek V3.2 to long prompts: the indexer pairs the wrong dimensions in RoPE",
    symptom="Queries and keys of the indexer are rotated in interleaved pairs, for which it was not trained.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.5.3,<0.5.6",),
    code=("sglang.srt.layers.attention.nsa.nsa_indexer:Indexer.__init__",),
    upstream=Upstream("sgl-project/sglang", issue=13530),
    hits=Is("architecture", "DeepseekV32ForCausalLM"),
    avoid="Nothing within the release avoids it; take release 0.5.6.",
)
