"""vllm.mamba-resumed-split, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.doctor.vllm import ATTENTION_FREE
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="vllm.mamba-resumed-split",
    title="Hybrid models answer wrongly behind a prefix that a preempted request computed again",
    symptom=(
        "Follow-up turns lose a part of their context once a request was preempted: its chunks end inside of blocks, and the "
        "cached states have seen fewer tokens than their prefix."
    ),
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.15.0,<0.17.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler._mamba_block_aligned_split",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        AnyOf(Is("recurrent layers", ON), Is("architecture", *ATTENTION_FREE)),
        Is("cache mode of states", "align"),
        Unseen("requests that are preempted behind their first token, and prompts that begin like them"),
    ),
    avoid="Start with `--no-enable-prefix-caching`.",
)
