"""sglang.falcon-h1-prefill, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="sglang.falcon-h1-prefill",
    title="Falcon-H1 mixes prompts that are prefilled together, and forgets all chunks of a prompt but the last",
    symptom="Mamba layers carry the state of one prompt into the next. They start from zero at each chunk of a long prompt.",
    symptoms=(SHARED_BATCH, LONG_PROMPT),
    releases=(">=0.5.3,<0.5.3.post1",),
    code=("sglang.srt.layers.attention.mamba.mamba:MambaMixer2.forward",),
    upstream=Upstream("sgl-project/sglang", pull=10909),
    hits=AllOf(
        Is("architecture", "FalconH1ForCausalLM"),
        Unseen("whether prompts share a prefill, or are longer than a chunk"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.3.post1.",
)
