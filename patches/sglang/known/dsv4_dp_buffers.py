"""sglang.dsv4-dp-buffers, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="sglang.dsv4-dp-buffers",
    title="DeepSeek V4 does not start with data-parallel attention and experts without all-to-all",
    symptom="Each rank ends in a TypeError (missing argument 'group') while it captures its first CUDA graph.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.5.12,<0.5.12.post1",),
    code=("sglang.srt.models.deepseek_v4:DeepseekV4DecoderLayer.forward",),
    upstream=Upstream("sgl-project/sglang", pull=25585, issue=25505),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Given("--enable-dp-attention"),
        Not(Is("--dp-size", "off", "1")),
        Is("--moe-a2a-backend", "off", "none"),
        Not(Given("$SGLANG_OPT_USE_DEEPGEMM_MEGA_MOE")),
        Is("--enable-nsa-prefill-context-parallel", "off"),
    ),
    avoid="Set --moe-a2a-backend deepep, or leave --enable-dp-attention out.",
)
