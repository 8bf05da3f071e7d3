"""vllm.turboquant-scratch, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, LONG_PROMPT

BUG = KnownBug(
    id="vllm.turboquant-scratch",
    title="A long prompt ends the server with a KV cache of TurboQuant: its scratch was not reserved",
    symptom="AssertionError: `Workspace is locked but allocation from … _continuation_prefill … requires …`.",
    symptoms=(CACHED_PREFIX, DIES, LONG_PROMPT),
    releases=(">=0.21.0,<0.24.0",),
    code=("vllm.v1.attention.backends.turboquant_attn:TurboQuantMetadataBuilder.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=44053, issue=43357),
    hits=AllOf(
        Is("KV cache dtype", "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
        Is("model runner", "V1"),
        Not(AnyOf(Given("--enforce-eager"), Is("--compilation-config.cudagraph_mode", "NONE", "none"))),
        Unseen("more than 128 new tokens behind a context, of an earlier chunk or a cached prefix, larger than the scratch"),
    ),
    avoid="Start with `--enforce-eager`, or with another `--kv-cache-dtype`.",
    harm=CRASH,
)
