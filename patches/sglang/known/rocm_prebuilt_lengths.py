"""sglang.rocm-prebuilt-lengths, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="sglang.rocm-prebuilt-lengths",
    title="Running answers turn wrong when a request joins a decode server with a drafter (AMD, Ascend)",
    symptom="The next step of the running requests reads lengths from before their last verification, and overwrites tokens.",
    symptoms=(SHARED_BATCH, SPECULATION, GARBAGE),
    releases=(">=0.5.13,<0.5.16",),
    code=(
        "sglang.srt.managers.overlap_utils:FutureMap.publish",
        "sglang.srt.speculative.eagle_disaggregation:build_eagle_disagg_draft_input",
    ),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(Is("GPU", AMD), Is("--device", "npu")),
        Is("--disaggregation-mode", "decode"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "FROZEN_KV_MTP"),
        Not(Given("--disable-overlap-schedule")),
        Not(Given("$SGLANG_ENABLE_WAR_BARRIER")),
    ),
    avoid="Set `--disable-overlap-schedule` on the decode server.",
)
