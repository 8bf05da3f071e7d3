"""vllm.spec-graph-sizes, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, SPECULATION

BUG = KnownBug(
    id="vllm.spec-graph-sizes",
    title="No server starts with two or four drafts and tensor parallelism",
    symptom="The start fails with: Can't determine cudagraph shapes that are both a multiple of (drafts + 1) and of (ranks).",
    symptoms=(DIES, GRAPHS, SPECULATION),
    releases=(">=0.11.1,<0.11.2",),
    code=("vllm.config.compilation:CompilationConfig.adjust_cudagraph_sizes_for_spec_decode",),
    upstream=Upstream("vllm-project/vllm", pull=29036),
    hits=AllOf(
        Is("full CUDA graphs", ON),
        Not(Is("attention", "sparse MLA")),
        Not(Is("attention backend", "TRITON_MLA", "CUTLASS_MLA", "ROCM_AITER_MLA", "ROCM_AITER_FA", "FLEX_ATTENTION")),
        Not(Given("--compilation-config.pass_config.enable_sequence_parallelism")),
        AnyOf(Not(Is("--compilation-config.cudagraph_mode", "FULL")), Unseen("a backend without full graphs of mixed steps")),
        AnyOf(
            AllOf(
                Is("--tensor-parallel-size", "2", "4", "8", "16"),
                Is("--speculative-config.num_speculative_tokens", "2", "4", "6", "8", "10"),
            ),
            AllOf(Is("--tensor-parallel-size", "4", "8", "16"), Is("--speculative-config.num_speculative_tokens", "5", "9")),
        ),
    ),
    avoid="Take one draft, or three, or seven; or set `--compilation-config.cudagraph_mode PIECEWISE`.",
    harm=CRASH,
)
