"""The driver's connection to a Ray cluster: found, given by its address, or one of this machine."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

from llamea_gpu.errors import ClusterError

ANY = "ray"  # the cluster that is found, else one of this machine alone
_ANSWER_S = 10.0
_CLIENT = "ray://"
# Ray Client's server forks one of its own for each driver. On a busy machine that now and then
# crashes in gRPC before it runs, and the driver is told most of a minute later (Ray's issue 63202).
_CLIENT_TRIES = 4
_OPTIONS: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}


def import_ray() -> Any:
    """The library.

    Raises:
        ClusterError: it is not installed.
    """
    # Tasks without GPUs see them all, as they will by default; without this Ray warns.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise ClusterError(
            "a cluster needs ray, which is not installed: pip install 'llamea-gpu[ray]'"
        ) from None
    return ray


def connect(address: str) -> bool:
    """Connect this process; False where it is connected already, and stays so.

    Raises:
        ClusterError: ray is not installed, nothing answers there, or it is of another version.
    """
    ray = import_ray()
    if ray.is_initialized():
        return False
    try:
        if address != ANY:
            _look_for(address)
            _init(ray, address)
            return True
        with contextlib.suppress(ConnectionError):
            ray.init(address="auto", **_OPTIONS)
            return True
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody was asked
        ray.init(address="local", include_dashboard=False, **_OPTIONS)
    except (ImportError, OSError, RuntimeError, ValueError) as error:  # as Ray says it
        raise ClusterError(
            f"a cluster must be '{ANY}', or the HOST:PORT or ray://HOST:PORT of one that runs the "
            f"same Python and Ray as this process (ray {ray.__version__}), but with {address!r}: "
            f"{error}"
        ) from error
    return True


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connected meanwhile; see `connect`."""
    owned = connect(address)
    try:
        yield
    finally:
        if owned:
            disconnect()


def disconnect() -> None:
    """End the job: Ray ends all processes of it, on every node."""
    import_ray().shutdown()


def _init(ray: Any, address: str) -> None:
    """Once more where a Ray Client server answers that the one for this driver did not start."""
    tries = _CLIENT_TRIES if address.startswith(_CLIENT) else 1
    for left in reversed(range(tries)):
        try:
            ray.init(address=address, **_OPTIONS)
            return
        except ConnectionAbortedError:
            if not left:
                raise


def _look_for(address: str) -> None:
    """Fail at once where nothing listens: Ray tries for minutes."""
    host, colon, port = address.removeprefix(_CLIENT).rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError("this is no address")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S):
        pass
