"""vllm.mla-prefix-no-chunks, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="vllm.mla-prefix-no-chunks",
    title="Embeddings ignore a cached prefix with chunked prefill switched off (MLA models)",
    symptom=(
        "With `--no-enable-chunked-prefill`, a pooling model answers a prompt that finds a prefix in the cache as if it had "
        "none. Models that generate keep chunks."
    ),
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.10.0,<0.10.2",),
    code=("vllm.v1.attention.backends.mla.common:MLACommonMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("engine core", "V1"),
        AnyOf(Is("--runner", "pooling"), Given("--task"), Given("--convert")),
        Is("--enable-chunked-prefill", OFF),
        Is("prefix caching", ON),
        Unseen("chunked prefill switched off, rather than left to its default"),
    ),
    avoid="Leave `--no-enable-chunked-prefill` out, or add `--no-enable-prefix-caching`.",
)
