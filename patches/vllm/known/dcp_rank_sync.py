"""vllm.dcp-rank-sync, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import PARALLEL, SLOW

BUG = KnownBug(
    id="vllm.dcp-rank-sync",
    title="Slower steps with decode context parallelism: the CPU waits for the GPU (FLASH_ATTN, sparse MLA)",
    symptom="Each step copies the number of its rank to the GPU, and waits until the step before has ended.",
    symptoms=(SLOW, PARALLEL),
    releases=(">=0.12.0,<0.31.0",),
    code=("vllm.v1.attention.backends.utils:get_dcp_local_seq_lens",),
    upstream=Upstream("vllm-project/vllm"),
    harm=SLOWER,
    hits=AllOf(
        Above("decode context parallel size", 1),
        AnyOf(
            Is("attention backend", "FLASH_ATTN"),
            AllOf(Since("0.25.0"), Not(Since("0.30.0")), Is("architecture", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")),
        ),
    ),
    avoid="Nothing within the release avoids it; take release 0.31.0.",
)
