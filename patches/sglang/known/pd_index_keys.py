"""sglang.pd-index-keys, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="sglang.pd-index-keys",
    title="Wrong answers of DeepSeek V3.2 to long prompts with P/D disaggregation: index keys stay behind",
    symptom="The decode server gets the KV of a prompt and no index keys, and picks its tokens at random.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.5.3,<0.5.3.post3",),
    code=("sglang.srt.disaggregation.decode:DecodePreallocQueue._init_kv_manager",),
    upstream=Upstream("sgl-project/sglang", pull=10912),
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        Is("--disaggregation-mode", "prefill", "decode"),
        Not(Is("--disaggregation-transfer-backend", "ascend")),
        Unseen("whether prompts have more than 2048 tokens"),
    ),
    avoid="Leave --disaggregation-mode out.",
)
