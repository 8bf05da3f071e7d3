"""Knows engines and releases, not one fix: digests, ledger, gate, switches, hooks, arming, records."""
