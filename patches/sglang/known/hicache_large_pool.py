"""sglang.hicache-large-pool, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.hicache-large-pool",
    title="HiCache ends the server at the start where one rank's host pool is very large",
    symptom="The start ends with `cudaHostRegister failed`, though the machine has enough memory.",
    symptoms=(DIES,),
    releases=(">=0.5.13,<0.5.19",),
    code=(
        "sglang.srt.mem_cache.memory_pool_host:alloc_with_host_register",
        "sglang.srt.mem_cache.pool_host.common:_cuda_host_register",
    ),
    upstream=Upstream("sgl-project/sglang", pull=36798),
    hits=AllOf(Given("--enable-hierarchical-cache"), Unseen("a host buffer that the driver does not register in one call")),
    avoid="Choose a smaller host pool with --hicache-size.",
    harm=CRASH,
)
