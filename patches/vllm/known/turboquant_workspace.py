"""vllm.turboquant-workspace, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES

BUG = KnownBug(
    id="vllm.turboquant-workspace",
    title="The engine dies on a long prompt: the workspace is locked before its chunks are known (TurboQuant)",
    symptom="`Workspace is locked but allocation from ... _continuation_prefill requires` ends the engine at a later chunk.",
    symptoms=(DIES, CONTEXT_LIMIT),
    releases=(">=0.21.0,<0.24.0",),
    code=("vllm.v1.attention.backends.turboquant_attn:TurboQuantMetadataBuilder.__init__",),
    upstream=Upstream("vllm-project/vllm", issue=46767),
    hits=AllOf(
        Is("KV cache dtype", "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"),
        Is("model runner", "V1"),
        Not(Given("--enforce-eager")),
        Not(Is("--compilation-config.cudagraph_mode", "NONE", "none")),
        Unseen("long prompts in several chunks, or long cached prefixes"),
    ),
    avoid="Start with `--enforce-eager`, or with `--kv-cache-dtype fp8`.",
    harm=CRASH,
)
