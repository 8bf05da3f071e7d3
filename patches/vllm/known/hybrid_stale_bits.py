"""vllm.hybrid-stale-bits, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.hybrid-stale-bits",
    title="NaN that grows with uptime: hybrid models read float32 states as KV",
    symptom="Answers are right at first. With uptime they turn into one repeated token, as blocks of states become KV.",
    symptoms=(GARBAGE,),
    releases=(">=0.10.2,<0.17.1",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=35219, issue=27264),
    hits=AllOf(
        Is("recurrent layers", ON),
        AnyOf(
            Is("--mamba-ssm-cache-dtype", "float32"),
            AllOf(Since("0.11.1"), Is("architecture", "KimiLinearForCausalLM")),
            AllOf(
                Since("0.13.0"),
                Is("architecture", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM"),
                Unseen("the checkpoint's mamba_ssm_cache_dtype"),
            ),
            AllOf(Since("0.17.0"), Is("architecture", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")),
        ),
    ),
    avoid="Set `--mamba-ssm-cache-dtype auto` where the checkpoint does not ask for float32; else restart once answers decay.",
)
