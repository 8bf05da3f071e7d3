"""sglang.trtllm-mla-no-chunks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend"

BUG = KnownBug(
    id="sglang.trtllm-mla-no-chunks",
    title="Crash on a prefix hit with --disable-chunked-prefix-cache (TRT-LLM MLA)",
    symptom="A prompt with a cached prefix, or a second chunk, ends the server: the kernel refuses the head size.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.5.3,<0.5.5.post1",),
    code=(f"{_BACKEND}.init_forward_metadata", f"{_BACKEND}.forward_extend"),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("chunked prefix cache", "off"),
        Is("attention", "MLA"),
        Is("prefill backend", "trtllm_mla"),
        Is("cached prefix", "on"),
    ),
    avoid="Leave --disable-chunked-prefix-cache out.",
)
