"""sglang.pd-value-pointers: V of which layer the engine sends to which, where the decode server alone has a drafter.

python tests/known/sglang/pd_value_pointers.py RELEASE      exit code 1: the bug is there
"""

import sys
from types import SimpleNamespace

from attnfix.compat.releases import fetch
from attnfix.prove import stubs

LAYERS, OF_DRAFTER = 8, 1


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    from sglang.srt.disaggregation.common.conn import CommonKVManager

    own = [f"{kind}{layer}" for kind in "KV" for layer in range(LAYERS)]
    theirs = own + [f"drafter's {kind}{layer}" for kind in "KV" for layer in range(OF_DRAFTER)]
    prefill = SimpleNamespace(kv_args=SimpleNamespace(prefill_start_layer=0))
    keys, values, their_keys, their_values, _ = CommonKVManager.get_mha_kv_ptrs_with_pp(prefill, own, theirs)
    wrong = [f"{a} to {b}" for a, b in zip([*keys, *values], [*their_keys, *their_values], strict=True) if a != b]
    print(f"sglang {release}: {len(wrong)} of {len(own)} go to another layer", *wrong[:1], sep=", ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
