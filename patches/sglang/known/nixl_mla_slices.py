"""sglang.nixl-mla-slices, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.nixl-mla-slices",
    title="Garbage with P/D disaggregation over NIXL, with MLA on unequal ranks or a data-parallel prefill",
    symptom="A decode server gets a part of each token's KV, cut as heads that the prefill rank does not have.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.2,<0.5.3",),
    code=("sglang.srt.disaggregation.nixl.conn:NixlKVManager.add_transfer_request",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("--disaggregation-mode", "prefill", "decode"),
        Is("--disaggregation-transfer-backend", "nixl"),
        AnyOf(
            AllOf(Is("attention", "MLA"), Unseen("whether decode's attention ranks are not as many as prefill's --tp-size")),
            AllOf(
                Not(Is("attention", "MLA")),
                AnyOf(Is("--disaggregation-mode", "decode"), Given("--enable-dp-attention")),
                Unseen("whether the prefill server has data-parallel attention with a --dp-size above 1"),
            ),
        ),
    ),
    avoid="Set --disaggregation-transfer-backend mooncake on both sides.",
)
