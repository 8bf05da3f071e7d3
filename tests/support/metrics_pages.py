"""Metrics pages of servers that run nowhere: made by `prometheus_client` from process records, as an engine's are."""

from __future__ import annotations

import prometheus_client

from attnfix.compat.status import metrics

FIX, OTHER = "sglang.zero-kv-rows", "sglang.lse-log-base"


def process(states, *, corrections=0, version="0.2.0", release="0.5.9", calls=0, reason=""):
    """A record as `process_record.read_all` gives it; `corrections` of each fix, or of the first."""
    if not isinstance(corrections, dict):
        corrections = dict.fromkeys([*states][:1], corrections)
    counts = {fix: corrections.get(fix, 0) for fix in states}
    counters = {fix: {"calls": max(calls, count), "corrections": count, "rows": 0} for fix, count in counts.items()}
    rows = [{"fix": fix, "state": state, "reason": reason, "counters": counters[fix]} for fix, state in states.items()]
    return {"engine": "sglang", "release": release, "attnfix": version, "alive": True, "fixes": rows}


def families(processes):
    """As on the page of a server of which these are all processes."""
    totals = {}
    for process in processes:
        metrics._add(totals, process)
    return metrics._families([process for process in processes if process["alive"]], totals)


def exposition(monkeypatch, *processes) -> str:
    """A server's page: what the engine counts, and what attnfix has found in these processes."""
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("sglang:tokens", "Of the engine.", registry=registry).inc()

    class Ours:
        def collect(self):
            return [family for family in families(processes) if family.samples]

    version = processes[0]["attnfix"] if processes else None
    with monkeypatch.context() as patched:
        patched.setattr("attnfix.compat.status.recorder.own_version", lambda: version)
        registry.register(Ours())
        return prometheus_client.generate_latest(registry).decode()
