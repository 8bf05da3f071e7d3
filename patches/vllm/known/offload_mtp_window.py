"""vllm.offload-mtp-window, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES

BUG = KnownBug(
    id="vllm.offload-mtp-window",
    title="The engine dies on a prefix from the CPU (windows, MTP of several modules, OffloadingConnector)",
    symptom="A load fetches a block more than the lookup checked, and an assertion fails where that block was not kept.",
    symptoms=(DIES, CACHED_PREFIX),
    releases=(">=0.28.0,<0.31.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler:get_sliding_window_size_in_chunks",),
    upstream=Upstream("vllm-project/vllm", pull=56709, issue=56701),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        Is("sliding-window layers", ON),
        Is("drafts from hidden states", ON),
        Not(Is("--speculative-config.method", "eagle", "eagle3", "dflash", "dspark")),
        Is("draft tokens of a step", "several"),
        Unseen("a model with several MTP modules, so with num_nextn_predict_layers above 1"),
    ),
    avoid="Set `num_speculative_tokens` to 1, or serve without offloading to the CPU.",
    harm=CRASH,
)
