"""vllm.hybrid-stale-bits, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

#: States are kept in another format than KV
_OTHER_BITS = AnyOf(
    Is("--mamba-ssm-cache-dtype", "float32"),
    Is("--mamba-cache-dtype", "float32"),
    Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2"),
    AllOf(Since("0.11.1"), Is("architecture", "KimiLinearForCausalLM")),
    AllOf(
        Since("0.13.0"),
        Is("architecture", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM"),
        Unseen("the checkpoint's mamba_ssm_cache_dtype"),
    ),
    AllOf(Since("0.17.0"), Is("architecture", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")),
)

BUG = KnownBug(
    id="vllm.hybrid-stale-bits",
    title="NaN that grows with uptime: hybrid models read states as KV",
    symptom="Answers are right at first. With uptime they turn into one repeated token, as blocks of states become KV.",
    symptoms=(GARBAGE,),
    releases=(">=0.10.2,<0.17.1",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=35219, issue=27264),
    hits=AllOf(
        Is("recurrent layers", ON),
        _OTHER_BITS,
        Not(Is("--attention-backend", "TRITON_ATTN")),
        AnyOf(Is("compute capability", 90, 100, 103), Unseen("a kernel of attention that multiplies masked values by zero")),
    ),
    avoid="Leave `--kv-cache-dtype` and `--mamba-ssm-cache-dtype` at `auto`; where states are float32, restart at times.",
)
