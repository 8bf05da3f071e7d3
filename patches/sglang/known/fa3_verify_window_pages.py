"""sglang.fa3-verify-window-pages, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS, SPECULATION

_BACKEND = "sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend"
_MIMO, _PHASES = "MiMoV2FlashForCausalLM", ("prefill", "decode")
_CHAINS = AllOf(Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"), Is("speculative topk", 1))

BUG = KnownBug(
    id="sglang.fa3-verify-window-pages",
    title="Wrong speculative text: verification reads wrong slots of the window pool (fa3, pages)",
    symptom="In CUDA graphs, window layers of MiMo-V2, Step-3.5 and gpt-oss take pages for slots. In 0.5.7 all steps do.",
    symptoms=(SPECULATION, GRAPHS, GARBAGE),
    releases=(">=0.5.7,<0.5.10",),
    code=(f"{_BACKEND}.init_forward_metadata_replay_cuda_graph", f"{_BACKEND}.forward_extend"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", _MIMO, "Step3p5ForCausalLM", "GptOssForCausalLM"),
        Is("sliding-window KV pool", ON),
        Above("tokens of a page", 1),
        AnyOf(
            AllOf(Not(Since("0.5.8")), Is("architecture", _MIMO), AnyOf(*(Is(f"{at} backend", "fa3") for at in _PHASES))),
            AllOf(Since("0.5.8"), Is("verify backend", "fa3"), Is("CUDA graphs", ON), _CHAINS),
        ),
    ),
    avoid="Set `--page-size 1`, or from 0.5.8 on `--disable-hybrid-swa-memory`, which takes more memory.",
)
