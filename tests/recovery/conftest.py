"""A cluster of trainers for each test; everything that is started is ended."""
import pytest
from trainer_cluster import Trainers


@pytest.fixture
def trainers(tmp_path):
    """make(ps, workers, *arguments): starts the parameter servers and the workers, the chief first."""
    made = []

    def make(ps, workers, *arguments, **kwargs):
        start_workers = kwargs.pop("start_workers", True)
        cluster = Trainers(tmp_path / kwargs.pop("folder", "model"), ps, workers, arguments, **kwargs)
        made.append(cluster)
        for i in range(ps):
            cluster.start("ps", i)
        for i in range(workers if start_workers else 0):
            cluster.start("worker", i)
        return cluster

    yield make
    for cluster in made:
        cluster.end()
