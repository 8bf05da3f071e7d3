"""sglang.plan-stream-verify, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="sglang.plan-stream-verify",
    title="Crash or fewer accepted drafts with SGLANG_ENABLE_OVERLAP_PLAN_STREAM: no wait for the drafts",
    symptom="Under load an illegal memory access ends the server, because verification is prepared from unfinished drafts.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.5.3.post2,<0.5.11", ">=0.5.13,<0.5.20"),
    code=(
        "sglang.srt.speculative.eagle_worker_v2:EAGLEWorkerV2.verify",
        "sglang.srt.speculative.eagle_worker_common:run_eagle_verify",
    ),
    upstream=Upstream("sgl-project/sglang", pull=28034, issue=21942),
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Not(Is("--disaggregation-mode", "prefill")),
        AnyOf(
            AllOf(Given("$SGLANG_ENABLE_OVERLAP_PLAN_STREAM"), Is("spec v2", ON)),
            AllOf(Given("--enable-beta-spec"), Not(Since("0.5.4"))),
        ),
    ),
    avoid="Leave SGLANG_ENABLE_OVERLAP_PLAN_STREAM unset, and before 0.5.4 `--enable-beta-spec` away.",
    harm=CRASH,
)
