"""sglang.fa3-draft-pages, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, SPECULATION

_BACKEND = "sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend"
#: A page, and the most steps whose drafts lie in two pages
_FITS = {2: 3, 4: 5, 8: 9, 16: 17}

BUG = KnownBug(
    id="sglang.fa3-draft-pages",
    title="Crash with draft trees of more steps than a page has tokens (fa3, CUDA graphs)",
    symptom="EAGLE with topk above 1 and small pages ends in an index out of bounds, or accepts fewer drafts.",
    symptoms=(DIES, SPECULATION, GRAPHS),
    releases=(">=0.5.7,<0.5.13",),
    code=(f"{_BACKEND}.init_forward_metadata_replay_cuda_graph", f"{_BACKEND}._apply_cuda_graph_metadata"),
    upstream=Upstream("sgl-project/sglang", pull=25077),
    hits=AllOf(
        Is("draft decode backend", "fa3"),
        Is("CUDA graphs", ON),
        Above("speculative topk", 1),
        AnyOf(*(AllOf(Is("--page-size", str(page)), Above("speculative steps", most)) for page, most in _FITS.items())),
    ),
    avoid="Set `--page-size 1`, or fewer `--speculative-num-steps` than a page has tokens.",
    harm=CRASH,
)
