"""sglang.nixl-dense-hang, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.nixl-dense-hang",
    title="No request ends with P/D disaggregation over NIXL, in models whose layers all attend to everything",
    symptom="The decode server waits for metadata and for a state that the prefill server never sends; requests time out.",
    symptoms=(DIES,),
    releases=(">=0.5.12,<0.5.12.post1",),
    code=(
        "sglang.srt.disaggregation.nixl.conn:NixlKVManager.transfer_worker",
        "sglang.srt.disaggregation.nixl.conn:NixlKVReceiver.send_metadata",
    ),
    upstream=Upstream("sgl-project/sglang", pull=25699, issue=25698),
    harm=CRASH,
    hits=AllOf(
        Is("--disaggregation-mode", "prefill", "decode"),
        Is("--disaggregation-transfer-backend", "nixl"),
        Is("sliding-window KV pool", "off"),
        Is("recurrent layers", "off"),
        Not(Is("architecture", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "GlmMoeDsaForCausalLM")),
    ),
    avoid="Set --disaggregation-transfer-backend mooncake on both sides.",
)
