"""Runs on the nodes of a Ray cluster what otherwise runs on this machine.

    runner      `ClusterRunner`: a `BaseRunner` whose runs are Ray tasks, in blocks
    nodes       which nodes there are, and which may be used
    worker      what goes on in a worker process of a node
    pipeline    `ClusterPipeline`: GPUs of several nodes as one engine
    engine      the actor at each of these GPUs
    facts       what a node is, and how it differs
    connection  to a cluster, or one of this machine alone

It is the only owner of ``ray``, which it imports when a cluster is asked for. What it does not do:
start nodes (``ray start``, Ray's cluster launcher or Slurm does), or write results: whoever asked
for a run does, on the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamea_gpu.runner import BaseRunner

__all__ = ["open_runner"]


def open_runner(
    cluster: str = "", workers: int | None = None, *, min_level: int = 1, unsafe: bool = False
) -> BaseRunner:
    """A runner on this machine, or on the cluster that is named; ``workers`` runs at a time.

    ``cluster`` is ``ray`` (the one that is found, else one of this machine alone), ``HOST:PORT``
    of a Ray head, or ``ray://HOST:PORT`` of a Ray Client server. ``workers`` are by default all
    cores. ``min_level`` is the least isolation to accept.

    Raises:
        SandboxUnavailableError: no isolation level verifies.
        ClusterError: ray is not installed, the cluster cannot be reached, or nodes differ.
    """
    if not cluster:
        from llamea_gpu.runner import Runner

        return Runner.open(workers, min_level=min_level, unsafe=unsafe)
    from llamea_gpu.cluster.runner import ClusterRunner

    return ClusterRunner.open(cluster, workers, min_level=min_level, unsafe=unsafe)
