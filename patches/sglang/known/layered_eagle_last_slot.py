"""sglang.layered-eagle-last-slot, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE, SHARED_BATCH, SPECULATION

_ARCHITECTURES = "MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "Step3p5ForCausalLM"
#: Up to 0.5.10.post1 these models switch spec v2 on
_V2 = AnyOf(Not(Since("0.5.11")), Is("spec v2", ON))
#: There, a decode server has slots behind the buffer only where it takes few requests, and writes only with graphs
_FEW = Unseen("whether a rank takes at most 32 requests at once, or SGLANG_DISAGGREGATION_NUM_PRE_ALLOCATE_REQS is set")

BUG = KnownBug(
    id="sglang.layered-eagle-last-slot",
    title="Several draft layers (MiMo-V2, Step-3.5) write hidden states behind their buffer",
    symptom="A request with the last slot of the pool overwrites other memory: a crash, or wrong answers at random.",
    symptoms=(DIES, GARBAGE, SHARED_BATCH, SPECULATION),
    releases=(">=0.5.7,<0.5.12",),
    code=("sglang.srt.speculative.multi_layer_eagle_worker_v2:MultiLayerEagleDraftWorker.__init__",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(
            AllOf(Is("speculative algorithm", "EAGLE", "EAGLE3"), Given("--enable-multi-layer-eagle"), Is("spec v2", ON)),
            AllOf(Is("speculative algorithm", "EAGLE"), Is("architecture", *_ARCHITECTURES), _V2),
        ),
        Above("speculative steps", 1),
        AnyOf(Since("0.5.11"), AllOf(Is("--disaggregation-mode", "decode"), Is("CUDA graphs", ON), _FEW)),
    ),
    avoid="Set `--speculative-num-steps 1`.",
    harm=CRASH,
)
