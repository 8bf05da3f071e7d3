"""vllm.image-chunk-stall: how far a prompt gets whose image is longer than --long-prefill-token-threshold, beside others.

python tests/known/vllm/image_chunk_stall.py RELEASE      exit code 1: the bug is there; 0.33.0 and later

A correction lets a step that begins at an image have all of its tokens, where the budget has them.
"""

import sys
from types import SimpleNamespace

from attnfix.compat.releases import fetch
from attnfix.prove import side, stubs

BEFORE, IMAGE, THRESHOLD, STEPS = 20, 600, 512, 8


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    side._ease_engine("vllm")
    from vllm.multimodal.inputs import PlaceholderRange
    from vllm.v1.core.sched.scheduler import Scheduler

    image = SimpleNamespace(mm_position=PlaceholderRange(offset=BEFORE, length=IMAGE), identifier="image", mm_hash="image")
    request = SimpleNamespace(has_encoder_inputs=True, mm_features=[image], request_id="0")
    cache = SimpleNamespace(
        get_cached_num_encoder_embeds=lambda *_: None,
        check_and_update_cache=lambda *_: False,
        can_allocate=lambda *_: True,
    )
    scheduler = SimpleNamespace(
        is_encoder_decoder=False,
        scheduler_config=SimpleNamespace(disable_chunked_mm_input=True),
        encoder_cache_manager=cache,
        ec_connector=None,
        _reject_on_encoder_cache_embed_mismatch=lambda *_: False,
    )
    computed = 0
    for _ in range(STEPS):
        asked = min(THRESHOLD, BEFORE + IMAGE - computed)
        computed += Scheduler._try_schedule_encoder_inputs(scheduler, request, computed, asked, 1 << 20)[1]
    print(f"vllm {release}: {computed} of {BEFORE + IMAGE} tokens are computed in {STEPS} steps of {THRESHOLD}")
    return 1 if computed < BEFORE + IMAGE else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
