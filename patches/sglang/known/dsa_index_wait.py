"""sglang.dsa-index-wait, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

_POOL = "sglang.srt.mem_cache.memory_pool:NSATokenToKVPool"

BUG = KnownBug(
    id="sglang.dsa-index-wait",
    title="Now and then garbage after a prefix that HiCache brings back (DeepSeek-V3.2, GLM-5)",
    symptom="Some answers to prompts whose prefix comes from host memory are garbled. The index keys were not there yet.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.9,<0.5.11",),
    code=(f"{_POOL}.get_index_k_continuous", f"{_POOL}.get_index_k_scale_continuous", f"{_POOL}.get_index_k_scale_buffer"),
    upstream=Upstream("sgl-project/sglang", pull=22811),
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Given("--enable-hierarchical-cache"),
        AnyOf(Not(Since("0.5.10")), Is("GPU", AMD)),  # from 0.5.10 on storing new index keys waits on NVIDIA
    ),
    avoid="Leave out `--enable-hierarchical-cache`.",
    ran=("0.5.9", "0.5.10.post1"),
)
