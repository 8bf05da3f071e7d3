"""sglang.dsa-hicache-index: do index keys come back from the host with the KV?

python tests/known/sglang/dsa_hicache_index.py RELEASE      exit code 1: the bug is there

A correction keeps index keys in host memory beside the KV, and copies them with it.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import stubs


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    from attnfix.patches.lab.sglang import absent, hicache  # noqa: F401  the stand-ins for imports of `absent` are wanted here

    wrong = [
        race for race in hicache.recorded(indexed=True).races if race.kind == "read of nothing" and "index keys" in race.memory
    ]
    print(f"sglang {release}: {len(wrong)} races", *wrong[:1], sep=", ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
