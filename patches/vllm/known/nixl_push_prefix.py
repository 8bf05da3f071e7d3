"""vllm.nixl-push-prefix, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.nixl-push-prefix",
    title="The KV of a prompt's start lands in the blocks of its end (NIXL push, a part of the prompt cached)",
    symptom="Answers are wrong, and the blocks stay in the cache, once the decode server has a part of the prompt cached.",
    symptoms=(GARBAGE, CACHED_PREFIX),
    releases=(">=0.24.0,<0.28.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker:NixlPushConnectorWorker._xfer_blocks",),
    upstream=Upstream("vllm-project/vllm", pull=48758, issue=48633),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "NixlPushConnector", "MultiConnector"),
        AnyOf(
            Is("prefix caching", ON),
            AllOf(Is("--kv-transfer-config.kv_role", "kv_producer"), Unseen("prefix caching of the decode servers")),
        ),
        Unseen("prompts that share a start, as turns of a chat do"),
    ),
    avoid="Start the decode servers with `--no-enable-prefix-caching`, or use `NixlConnector`, which pulls.",
)
