"""sglang.hicache-load-fence: does the copy of a prefix from the host wait for the step in flight?

python tests/known/sglang/hicache_load_fence.py RELEASE      exit code 1: the bug is there

A correction makes the load stream wait for the forward stream before `start_loading` copies.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import stubs


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    from attnfix.patches.lab.sglang import absent, hicache  # noqa: F401  the stand-ins for imports of `absent` are wanted here

    wrong = [
        race for race in hicache.recorded().races if race.kind.startswith("write after") and race.second.actor.name == "load"
    ]
    print(f"sglang {release}: {len(wrong)} races", *wrong[:1], sep=", ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
