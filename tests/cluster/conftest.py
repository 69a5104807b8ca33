"""Two real Ray nodes on this machine, for all tests of this folder."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.imports import hide
from support.waiting import wait_until

from llamea_gpu.cluster.connection import connected
from llamea_gpu.cluster.pipeline import find_gpus


class Nodes:
    """Two nodes of one core and one GPU, which is pretended, and others that come and go.

    Args:
        path: where their processes look for modules first.
    """

    def __init__(self, *path: Path) -> None:
        from ray.cluster_utils import Cluster

        self._path = os.pathsep.join(map(str, path))
        client_port = _free_port()
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "include_dashboard": False,
                "include_log_monitor": False,
                "no_monitor": True,  # no nodes are asked for
                "ray_client_server_port": client_port,
                **self._has("H200", {}),
            },
        )
        self.address: str = self._cluster.address
        self.client_address = f"ray://127.0.0.1:{client_port}"
        self.second = self.add("H200")

    def add(self, gpu: str = "", **environment: str) -> Any:
        """One more; with ``gpu``, it has one of this kind."""
        return self._cluster.add_node(**self._has(gpu, environment))

    def kill(self, node: Any) -> None:
        """Without a word to anybody."""
        self._cluster.remove_node(node, allow_graceful=False)

    def replace_second(self) -> None:
        """Have two nodes again where one was killed, and nobody count on a third."""
        self.second = self.second or self.add("H200")
        with connected(self.address):
            wait_until(lambda: find_gpus().count == 2)

    def leave(self, node: Any) -> None:
        """In order: the cluster knows at once."""
        self._cluster.remove_node(node)

    def shutdown(self) -> None:
        for node in (*self._cluster.worker_nodes, self._cluster.head_node):
            self.kill(node)  # in order, each takes its time
        self._cluster.shutdown()

    def _has(self, gpu: str, environment: Mapping[str, str]) -> dict[str, Any]:
        has: dict[str, Any] = {
            "num_cpus": 1,
            "env_vars": {"PYTHONPATH": self._path, **environment},
        }
        if gpu:
            has |= {"num_gpus": 1, "resources": {f"accelerator_type:{gpu}": 1}}
        return has


def _free_port() -> int:
    """Below those that the system hands out: Ray's own processes take many of these."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Without PyTorch, which Kernel Tuner imports where it is: most of a recorder's start."""
    pytest.importorskip("ray")
    hidden = tmp_path_factory.mktemp("hidden")
    hide("torch", hidden)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # No processes in store, nor figures of them: a third of the CPU of these tests.
        patch.setenv("RAY_enable_worker_prestart", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")
        patch.setenv("RAY_enable_metrics_collection", "0")
        patch.setenv("RAY_event_stats", "0")
        # The head's Ray Client server forks, and gRPC's handlers of that crash now and then.
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        # Ray's workers give way to everything else, such as other tests: they would hardly run.
        patch.setenv("RAY_worker_niceness", "0")
        # How long Ray gives processes to start: the machine may be busy with other tests.
        patch.setenv("RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S", "300")
        patch.setenv("TIMEOUT_FOR_SPECIFIC_SERVER_S", "300")
        patch.setenv("RAY_worker_register_timeout_seconds", "300")
        started = Nodes(Path(__file__).parents[1], hidden)
        yield started
        started.shutdown()
