"""Schemas of what Kubernetes does not have itself, as far as docs/monitoring/kubernetes uses it, and Kustomize's merge.

By the custom resource definitions of the Prometheus operator (0.82 to 0.91) and `Kustomization` in Kustomize's API.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import kubernetes_validate


def _object(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


TEXT = {"type": "string", "minLength": 1}
DURATION = {"type": "string", "pattern": "^[1-9][0-9]*(ms|s|m|h|d|w|y)$"}
LABELS = {"type": "object", "additionalProperties": TEXT}


def _resource(api: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _object(
        "apiVersion kind metadata spec",
        apiVersion={"const": api},
        kind={"const": kind},
        metadata=_object("name", name=TEXT),
        spec=spec,
    )


_RULE = _object("expr", alert=TEXT, record=TEXT, expr=TEXT, labels=LABELS, annotations=LABELS, **{"for": DURATION})
_RULE["oneOf"] = [{"required": ["alert"]}, {"required": ["record"]}]
SCHEMAS = {
    "PrometheusRule": _resource(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        _object("groups", groups=_list(_object("name", name=TEXT, rules=_list(_RULE)))),
    ),
    "PodMonitor": _resource(
        "monitoring.coreos.com/v1",
        "PodMonitor",
        _object(
            "selector podMetricsEndpoints",
            jobLabel=TEXT,
            selector=_object(matchLabels=LABELS),
            podMetricsEndpoints=_list(_object(port=TEXT, path=TEXT)),
        ),
    ),
    "Component": _object(
        "apiVersion kind",
        apiVersion={"const": "kustomize.config.k8s.io/v1alpha1"},
        kind={"const": "Component"},
        resources=_list(TEXT),
        patches=_list(_object("path", path=TEXT, target=_object(kind=TEXT, name=TEXT))),
    ),
    "Kustomization": _object(
        "apiVersion kind",
        apiVersion={"const": "kustomize.config.k8s.io/v1beta1"},
        kind={"const": "Kustomization"},
        resources=_list(TEXT),
        components=_list(TEXT),
        images=_list(_object("name", name=TEXT, newName=TEXT, newTag=TEXT)),
    ),
}


def check(manifest: dict[str, Any]) -> None:
    """Raises ValidationError unless the manifest is sound by its schema, in which no word is unknown."""
    if schema := SCHEMAS.get(manifest["kind"]):
        jsonschema.validate(manifest, schema)
    else:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def spoilt(node: Any) -> Iterator[Any]:
    """The same with one key too many, once for each place."""
    if isinstance(node, dict):
        yield {**node, "unknown": {}}
        for key, value in node.items():
            yield from ({**node, key: each} for each in spoilt(value))
    elif isinstance(node, list):
        yield from ([each, *node[1:]] for each in spoilt(node[0]))


#: Of a list of objects, the key by which a strategic merge finds the one to change
_KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "containerPort"}


def merged(resource: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`resource` behind a strategic merge patch."""
    made = dict(resource)
    for name, value in patch.items():
        if isinstance(value, dict):
            made[name] = merged(made.get(name, {}), value)
        elif name in _KEYS:
            new = {each[_KEYS[name]]: each for each in value}
            old = {each[_KEYS[name]]: each for each in made.get(name, [])}
            made[name] = [merged(old.get(key, {}), new.get(key, {})) for key in (old | new)]
        else:
            made[name] = value
    return made
