"""vllm.mamba-chunk-blocks, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

_ALIGNED = AnyOf(
    Is("Mamba2 layers", OFF),
    Is("--mamba-cache-mode", "align"),
    AllOf(Since("0.28.0"), Not(Is("--mamba-cache-mode", "all"))),
)
BUG = KnownBug(
    id="vllm.mamba-chunk-blocks",
    title="Hybrid models answer wrongly behind a cached prefix when layers have blocks of two sizes",
    symptom=(
        "Chunks of a prompt end at blocks of another layer: a cached state has seen other tokens than its prefix. No error."
    ),
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.25.0,<=0.33.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._mamba_block_aligned_split",),
    upstream=Upstream("vllm-project/vllm", pull=54076, issue=50630, report="vllm-mamba-chunk-blocks"),
    hits=AllOf(
        Is("cached prefixes of a hybrid model", ON),
        Is("recurrent layers", ON),
        _ALIGNED,
        AnyOf(
            AllOf(Is("attention backend", "FLASHINFER"), Is("sliding-window layers", ON)), Given("--kv-cache-dtype-skip-layers")
        ),
    ),
    avoid="Set `--no-enable-prefix-caching`, or take FLASH_ATTN without `--kv-cache-dtype-skip-layers`.",
)
