"""sglang.hicache-storage-namespace: under which storage keys the engine keeps one prompt of two adapters and of the base model.

python tests/known/sglang/hicache_storage_namespace.py RELEASE      exit code 1: the bug is there; 0.5.6 and later
"""

import hashlib
import sys
from array import array
from types import SimpleNamespace

from attnfix.compat.releases import fetch
from attnfix.prove import side, stubs

PAGE, PROMPT = 16, array("q", range(64))
#: What the radix cache knows the requests apart by
NAMESPACES = ("0123456789abcdef" * 2, "f" * 32, None)


def _hashes(tokens, before: bytes | None, page: int) -> list[str]:
    """For the engine's compiled hash: a hash of each page's tokens, and of the page before."""
    raw, found = tokens.raw_token_ids().tobytes(), []
    for start in range(0, len(raw), 8 * page):
        before = hashlib.sha256((before or b"") + raw[start : start + 8 * page]).digest()
        found.append(before.hex())
    return found


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    side._ease_engine("sglang")
    from sglang.srt.mem_cache import radix_cache

    home = sys.modules.get("sglang.srt.mem_cache.utils", radix_cache)
    if hasattr(home, "get_native_hash"):
        home.get_native_hash = _hashes
    keys_of = getattr(home, "compute_node_hash_values", None) or radix_cache.compute_node_hash_values
    nodes = [SimpleNamespace(key=radix_cache.RadixKey(PROMPT, name), parent=None) for name in NAMESPACES]
    keys = {tuple(keys_of(node, PAGE)) for node in nodes}
    print(f"sglang {release}: {len(keys)} sets of storage keys for {len(NAMESPACES)} namespaces")
    return 1 if len(keys) < len(NAMESPACES) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
