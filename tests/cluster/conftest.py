"""Two real Ray nodes on this machine, for all tests of the session."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]


class Nodes:
    """A head of one core, to which nodes of one core may be added; they come and go."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        with socket.create_server(("127.0.0.1", 0)) as free:
            client_port = free.getsockname()[1]
        self._environment = {"PYTHONPATH": str(TESTS)}
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "include_dashboard": False,
                "env_vars": self._environment,
                "ray_client_server_port": client_port,
            },
        )
        self.address: str = self._cluster.address
        self.client_address = f"ray://127.0.0.1:{client_port}"

    def add(self, gpu: str = "", **environment: str) -> Any:
        """With ``gpu``, it pretends to have one of this kind."""
        has: dict[str, Any] = {"num_cpus": 1, "env_vars": {**self._environment, **environment}}
        if gpu:
            has |= {"num_gpus": 1, "resources": {f"accelerator_type:{gpu}": 1}}
        return self._cluster.add_node(**has)

    def kill(self, node: Any) -> None:
        """Without a word to anybody."""
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        started = Nodes()
        started.add()
        yield started
        started.shutdown()
