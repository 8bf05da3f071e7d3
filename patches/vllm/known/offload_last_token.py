"""vllm.offload-last-token, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="vllm.offload-last-token",
    title="A follow-up turn loads KV that was never computed, for the last token of the answer before it",
    symptom=(
        "An answer that ends at the end of a block is offloaded with the KV of its last token unwritten; a later turn loads it."
    ),
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.26.0,<0.30.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler:OffloadingConnectorScheduler._build_store_jobs",),
    upstream=Upstream("vllm-project/vllm", pull=54288, issue=54193),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        Unseen("offload_prompt_only false in kv_connector_extra_config"),
    ),
    avoid="Leave `offload_prompt_only` at its default, true.",
)
