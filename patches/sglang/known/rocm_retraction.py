"""sglang.rocm-retraction, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.rocm-retraction",
    title="A decode server on AMD GPUs dies when it restores the KV of a retracted request",
    symptom="The decode server ends with a GPU memory fault some time after its KV cache was full.",
    symptoms=(DIES,),
    releases=(">=0.5.18,<0.5.19",),
    code=("sglang.srt.mem_cache.kv_cache_builder:resolve_decode_retraction_backup",),
    upstream=Upstream("sgl-project/sglang", pull=36343),
    hits=AllOf(
        Is("GPU", AMD),
        Is("attention", "MHA"),
        Not(Is("recurrent layers", ON)),
        Is("--disaggregation-mode", "decode"),
        AnyOf(
            Is("--disaggregation-decode-retraction-backup", "host_pool"),
            AllOf(
                Is("--disaggregation-decode-retraction-backup", OFF),
                *(Not(Given(f"--disaggregation-decode-enable-{other}")) for other in ("radix-cache", "offload-kvcache")),
            ),
        ),
        Unseen("a large request that is retracted"),
    ),
    avoid="Start the decode server with --disaggregation-decode-retraction-backup cpu_tensor.",
    harm=CRASH,
)
