"""vllm.mla-prefix-no-chunks, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.mla-prefix-no-chunks",
    title="A cached prefix is ignored by MLA models with chunked prefill switched off",
    symptom="With `--no-enable-chunked-prefill`, a prompt that finds a prefix in the cache is answered as if it had none.",
    symptoms=(
        CACHED_PREFIX,
        GARBAGE,
    ),
    releases=(">=0.10.0,<0.10.2",),
    code=("vllm.v1.attention.backends.mla.common:MLACommonMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("engine core", "V1"),
        Is("--enable-chunked-prefill", OFF),
        Unseen("chunked prefill switched off, rather than left to its default"),
    ),
    avoid="Leave `--no-enable-chunked-prefill` out, or add `--no-enable-prefix-caching`.",
)
