"""Compiled code that a correction changes: it has entries of its own in the cache on the disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass
class ChangedCode:
    """Whether models of this process were corrected: code that was compiled without the correction is not taken then.

    The engine's key has the model's config in it, but not what a correction adds to that where transformers is 5 or later.
    """

    mark: str
    is_changed: bool = False

    def key(self, stock: str) -> str:
        return hashlib.sha256(f"{stock} {self.mark}".encode()).hexdigest()[: len(stock)]
