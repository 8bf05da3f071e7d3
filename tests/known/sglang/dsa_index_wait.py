"""sglang.dsa-index-wait: do reads of index keys wait for their copy from the host?

python tests/known/sglang/dsa_index_wait.py RELEASE      exit code 1: the bug is there

A correction waits for the layer's event in the accessors of index keys, as `get_key_buffer` does.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import stubs


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    from attnfix.patches.lab.sglang import absent, hicache  # noqa: F401  the stand-ins for imports of `absent` are wanted here

    wrong = [
        race for race in hicache.recorded(indexed=True).races if race.kind == "read after write" and "index keys" in race.memory
    ]
    print(f"sglang {release}: {len(wrong)} races", *wrong[:1], sep=", ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
