"""sglang.dsv4-pd-draft-window, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

BUG = KnownBug(
    id="sglang.dsv4-pd-draft-window",
    title="DeepSeek V4 accepts fewer drafts behind a P/D transfer: KV of its draft layer stays behind",
    symptom="The draft layer attends to stale KV, until a window of new tokens has replaced that of the prompt.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.12,<0.5.16",),
    code=("sglang.srt.disaggregation.utils:setup_state_kv_args",),
    upstream=Upstream("sgl-project/sglang", pull=30461),
    harm=SLOWER,
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("--disaggregation-mode", "prefill", "decode"),
        Is("speculative algorithm", "EAGLE"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.16.",
)
