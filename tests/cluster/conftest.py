"""Fixtures of the tests on a real SLURM: one cluster for all, and jobs that are cancelled at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobs import Job
from private_cluster import Cluster, missing
from recipes import tiny_data, tiny_encoder

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    why = missing()
    if why:
        pytest.skip(why)
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Calls sbatch as a person does, in the project's folder; shows the logs of a test that fails."""
    jobs: list[Job] = []

    def sbatch(*words: object) -> Job:
        jobs.append(Job(cluster, tmp_path / "logs", words))
        return jobs[-1]

    yield sbatch
    for job in jobs:
        print(f"--- job {job.number}: {job.field('JobState')}\n{job.log()[-4000:]}")
        job.cancel()
    cluster.wait_until_idle()


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """DATA and ENCODER_DIR of a tiny GLUE task."""
    folder = tmp_path_factory.mktemp("rows")
    return tiny_data(folder, "glue"), tiny_encoder(folder / "encoder", "glue")
