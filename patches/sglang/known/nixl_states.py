"""sglang.nixl-states, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

_CONN = "sglang.srt.disaggregation.nixl.conn"

BUG = KnownBug(
    id="sglang.nixl-states",
    title="Garbage of hybrid models and DeepSeek V3.2 with P/D disaggregation over NIXL: states stay behind",
    symptom="Recurrent states, KV of window layers and index keys of a prompt never reach the decode server.",
    symptoms=(GARBAGE,),
    releases=(">=0.5.3.post3,<0.5.9",),
    code=(f"{_CONN}:NixlKVSender.send", f"{_CONN}:NixlKVManager.add_transfer_request"),
    upstream=Upstream("sgl-project/sglang", pull=18939),
    hits=AllOf(
        Is("--disaggregation-mode", "prefill", "decode"),
        Is("--disaggregation-transfer-backend", "nixl"),
        AnyOf(
            Is("recurrent layers", "on"),
            Is("sliding-window KV pool", "on"),
            Is("architecture", "DeepseekV32ForCausalLM"),
        ),
    ),
    avoid="Set --disaggregation-transfer-backend mooncake on both sides.",
)
