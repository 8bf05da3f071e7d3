"""vllm.mtp-modules-handover, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="vllm.mtp-modules-handover",
    title="Fewer drafts are accepted after a handover from a prefill server (MTP of several modules, V2 runner)",
    symptom="The later modules' KV of the prompt's end holds drafts that nobody verified, and the decode server keeps it.",
    symptoms=(SPECULATION,),
    releases=(">=0.28.0,<0.31.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler:NixlBaseConnectorScheduler.on_new_request",),
    upstream=Upstream("vllm-project/vllm", pull=55055),
    hits=AllOf(
        Is("model runner", "V2"),
        Is("--kv-transfer-config.kv_connector", "NixlConnector", "NixlPullConnector", "NixlPushConnector", "MultiConnector"),
        Is("--speculative-config.method", "mtp", "mimo_v2_mtp", "inkling_mtp", "step3p5_mtp"),
        AnyOf(
            Above("--speculative-config.num_speculative_tokens", 1),
            Not(Given("--speculative-config.num_speculative_tokens")),
        ),
        Unseen("a model with several MTP modules, as MiMo-V2 and Inkling have"),
    ),
    avoid="Set `num_speculative_tokens` to 1.",
    harm=SLOWER,
)
