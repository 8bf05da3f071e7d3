"""sglang.gdn-verify-conv, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SHARED_BATCH, SPECULATION

_CONV = "sglang.srt.layers.attention.mamba.causal_conv1d_triton"

BUG = KnownBug(
    id="sglang.gdn-verify-conv",
    title="Qwen3-Next changes its text with MTP under load: a verification overwrites the states that it reads",
    symptom="The convolution writes drafts beyond the end of a state, into that of the next channel or request.",
    symptoms=(SPECULATION, SHARED_BATCH),
    releases=(">=0.5.2,<0.5.3.post1",),
    code=(f"{_CONV}:causal_conv1d_update", f"{_CONV}:_causal_conv1d_update_kernel"),
    upstream=Upstream("sgl-project/sglang", pull=10909),
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        Is("speculative decoding", "on"),
        Unseen("whether so many requests are verified at once that blocks of the kernel run one after another"),
    ),
    avoid="Leave --speculative-algorithm out.",
)
