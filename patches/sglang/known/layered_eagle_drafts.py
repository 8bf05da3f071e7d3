"""sglang.layered-eagle-drafts, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

_WORKER = "sglang.srt.speculative.multi_layer_eagle_worker_v2:MultiLayerEagleDraftWorker"
_MIMO = "MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"
_STEP = "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"
#: Up to 0.5.10.post1 these models switch spec v2 on
_V2 = AnyOf(Not(Since("0.5.11")), Is("spec v2", ON))

BUG = KnownBug(
    id="sglang.layered-eagle-drafts",
    title="MiMo-V2 and Step-3.5 accept few drafts where no CUDA graph runs their draft layers",
    symptom="Outside CUDA graphs all draft layers but the first attend with lengths and pages of an earlier batch.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.7,<0.5.16",),
    code=(f"{_WORKER}._draft_extend_for_decode",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(
            AllOf(Is("speculative algorithm", "EAGLE", "EAGLE3"), Given("--enable-multi-layer-eagle"), Is("spec v2", ON)),
            AllOf(Is("speculative algorithm", "EAGLE"), Is("architecture", *_MIMO, *_STEP), _V2),
        ),
        Above("speculative steps", 1),
        AnyOf(Is("CUDA graphs", OFF), Unseen("whether more requests run at once than the graphs hold")),
        Not(Is("--device", "npu")),
        Not(Is("--disaggregation-mode", "prefill")),
    ),
    avoid="Leave CUDA graphs on, and set `--max-running-requests` no higher than the largest batch that they hold.",
    harm=SLOWER,
)
