"""sglang.encoder-prefix-cache, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.doctor.sglang import ENCODERS
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="sglang.encoder-prefix-cache",
    title="Wrong embeddings and scores of BERT-like models from the second text on: prefixes are cached",
    symptom="A text takes the first tokens' keys from another text, and pools a later token. XLM-RoBERTa dies of an assertion.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.1,<=0.5.23",),
    code=("sglang.srt.managers.schedule_batch:Req.init_next_round_input",),
    upstream=Upstream("sgl-project/sglang", pull=4887),
    hits=AllOf(Is("architecture", *ENCODERS), Not(Given("--disable-radix-cache"))),
    avoid="Set `--disable-radix-cache`, and `--chunked-prefill-size -1`, too.",
)
