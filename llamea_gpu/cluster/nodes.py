"""Which nodes a cluster has now, what each runs, and which of them may be used.

All nodes run what the driver runs, and verify one level of the sandbox: runs would otherwise depend
on where they happen. At the start a node that differs is an error; one that joins later is left out
and told.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from llamea_gpu.cluster.connection import import_ray
from llamea_gpu.cluster.facts import Examined, Facts, software
from llamea_gpu.cluster.worker import LEVEL, NO_LEVEL, Isolation, examine
from llamea_gpu.errors import ClusterError, SandboxUnavailableError

_EXAMINED_WITHIN_S = 300.0  # a cold disk, and a sandbox that is verified
_NODE_LABEL = "ray.io/node-id"


class Nodes:
    """The nodes of the cluster that this process is connected to."""

    def __init__(self, isolation: Isolation) -> None:
        self._ray = import_ray()
        self._isolation = isolation
        self._examine = self._ray.remote(examine)
        self._seen: set[str] = set()
        self._refused: set[str] = set()
        self.expected: Facts = software()
        self.cpus = 0

    @property
    def level(self) -> int:
        """Of the sandboxes."""
        return int(self.expected[LEVEL])

    @property
    def selector(self) -> Mapping[str, str]:
        """Ray's label selector of the nodes that may be used, and of those still to come."""
        refused = ",".join(sorted(self._refused))
        return {_NODE_LABEL: f"!in({refused})"} if refused else {}

    def examine_all(self) -> None:
        """See what every node is that is there; without any, wait for the first.

        Raises:
            ClusterError: one differs from this process, or from the others.
            SandboxUnavailableError: none has a sandbox.
        """
        examined = self._examined(self._alive()) or [self._first()]
        level = _best_level(examined)
        if level == NO_LEVEL:
            raise SandboxUnavailableError(f"on {examined[0].host}: {examined[0].problem}")
        self.expected = {LEVEL: level, **self.expected}
        wrong = [f"{one.host}: {why}" for one in examined if (why := one.unlike(self.expected))]
        if wrong:
            raise ClusterError(
                f"all nodes must run what the driver runs, at one sandbox level, but "
                f"{len(wrong)} of {len(examined)} do not: {' | '.join(wrong)}. Mend them, or take "
                f"them out of the cluster"
            )
        self.count()

    def count(self) -> None:
        """Bring ``cpus``, those that may be used now, up to date."""
        usable = [node for node in self._alive() if node["NodeID"] not in self._refused]
        self.cpus = sum(int(node["Resources"].get("CPU", 0)) for node in usable)

    def refuse(self, node: str, host: str, why: str) -> None:
        """Use this node no more.

        Raises:
            ClusterError: none is left.
        """
        if node in self._refused:
            return
        self._refused.add(node)
        self.count()
        message = f"node {host} ({node[:8]}) is not used, because it differs: {why}"
        if not self.cpus:
            raise ClusterError(f"a cluster must have a node that may be used, but {message}")
        warnings.warn(message, stacklevel=2)

    def refuse_unfit(self) -> bool:
        """Examine nodes that have joined; whether one of them had to be refused."""
        before = len(self._refused)
        for one in self._examined([n for n in self._alive() if n["NodeID"] not in self._seen]):
            if why := one.unlike(self.expected):
                self.refuse(one.node, one.host, why)
        return len(self._refused) > before

    def _alive(self) -> list[dict[str, Any]]:
        nodes = self._ray.nodes()
        return [n for n in nodes if n["Alive"] and n["Resources"].get("CPU", 0) >= 1]

    def _first(self) -> Examined:
        """The first node that comes: waiting for one is what makes an autoscaler start it."""
        examined: Examined = self._ray.get(self._examine.remote(self._isolation))
        return examined

    def _examined(self, nodes: Sequence[Mapping[str, Any]]) -> list[Examined]:
        """What they are; without those that have died meanwhile."""
        requests = [(node, self._ask(node["NodeID"])) for node in nodes]  # all at once
        examined = [self._answer(node, reference) for node, reference in requests]
        alive_ids = {node["NodeID"] for node in self._alive()}
        self._seen.update(alive_ids & {one.node for one in examined})
        return [one for one in examined if one.node in alive_ids]

    def _ask(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"scheduling_strategy": strategy, "num_cpus": 0, "max_retries": 0}
        return self._examine.options(**options).remote(self._isolation)

    def _answer(self, node: Mapping[str, Any], reference: Any) -> Examined:
        try:
            examined: Examined = self._ray.get(reference, timeout=_EXAMINED_WITHIN_S)
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            problem = f"it cannot be examined (is llamea_gpu installed there?): {reason}"
            return Examined(node["NodeID"], node["NodeManagerHostname"], {}, problem)
        return examined


def _best_level(examined: Sequence[Examined]) -> str:
    """The one that most have, the better one of two."""
    levels = [one.facts.get(LEVEL, NO_LEVEL) for one in examined]
    return max(levels, key=lambda level: (level != NO_LEVEL, levels.count(level), level))
