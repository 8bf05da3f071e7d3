"""vllm.tier-other-tp, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.tier-other-tp",
    title="Prefixes on disk are garbage for a server of another tensor parallel size (OffloadingConnector)",
    symptom="Files have one name for all sizes, while each rank's layers lie side by side in them: heads and layers mix.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.29.0,<=0.33.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.offloading.config:build_offloading_config",),
    upstream=Upstream("vllm-project/vllm", pull=55191),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        Is("model runner", "V1"),
        Is("attention", "MHA"),
        Is("recurrent layers", OFF),
        Is("decode context parallel size", 1),
        AnyOf(Is("sliding-window layers", OFF), Is("hybrid KV cache manager", OFF)),
        Not(Is("KV cache dtype", "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head")),
        Unseen("a second tier whose files a server with another `--tensor-parallel-size` wrote"),
    ),
    avoid="Give each `--tensor-parallel-size` a folder of its own.",
)
