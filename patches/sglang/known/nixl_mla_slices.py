"""sglang.nixl-mla-slices, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.nixl-mla-slices",
    title="Garbage with P/D disaggregation over NIXL, with data-parallel attention or MLA on unequal ranks",
    symptom="A decode server gets a part of each token's KV, cut as heads that the prefill rank does not have.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.2,<0.5.3",),
    code=("sglang.srt.disaggregation.nixl.conn:NixlKVManager.add_transfer_request",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("--disaggregation-mode", "prefill", "decode"),
        Is("--disaggregation-transfer-backend", "nixl"),
        AnyOf(Given("--enable-dp-attention"), Is("attention", "MLA")),
        Unseen("whether the attention ranks of the decode server are not as many as --tp-size of the prefill server"),
    ),
    avoid="Set --disaggregation-transfer-backend mooncake on both sides.",
)
