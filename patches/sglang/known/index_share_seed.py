"""sglang.index-share-seed, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Given, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

BUG = KnownBug(
    id="sglang.index-share-seed",
    title="GLM-5.2 accepts fewer drafts on a decode server: its draft layer attends to the first token alone",
    symptom="Behind a prefill server, draft steps take indices that nobody computed for the request.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.15,<0.5.15.post1",),
    code=(
        "sglang.srt.speculative.eagle_disaggregation:build_eagle_disagg_draft_input",
        "sglang.srt.managers.overlap_utils:FutureMap._resolve_spec_extras",
    ),
    upstream=Upstream("sgl-project/sglang", pull=30839),
    harm=SLOWER,
    hits=AllOf(
        Is("architecture", "GlmMoeDsaForCausalLM"),
        Is("--disaggregation-mode", "decode"),
        Given("--speculative-algorithm"),
        Is("speculative topk", 1),
        Above("speculative steps", 1),
        Unseen("whether the model's config.json sets index_share_for_mtp_iteration"),
    ),
    avoid="""Set --json-model-override-args '{"index_share_for_mtp_iteration": false}' on the decode server.""",
)
