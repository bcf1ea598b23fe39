"""A RemoteLoader where frameworks expect a loader of torch's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import webdataset as wds
from remote_support import Fleet, write_shards

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("remote")


def numbers(shards):
    base = wds.WebDataset(shards, exact=True, seed=5, lanes=2, shuffle_bytes=4000, block_bytes=1000).decode()
    return base.map(lambda sample: {**sample, "x": [float(sample["cls"])]}).to_tuple("x", "cls").batched(8)


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    with Fleet(2, numbers, write_shards(tmp_path_factory.mktemp("frameworks"), (40, 24))) as fleet:
        yield fleet.urls


@pytest.fixture
def loader(urls):
    with wds.RemoteLoader(urls, patience=60) as made:
        yield made


def test_arrays_become_tensors_unless_they_are_to_stay(urls) -> None:
    for chosen, kind in [({}, torch.Tensor), ({"tensors": True}, torch.Tensor), ({"tensors": False}, np.ndarray)]:
        with wds.RemoteLoader(urls, patience=60, **chosen) as one:
            assert type(next(iter(one))[1]) is kind
    with pytest.raises(ValueError, match="tensors"):
        wds.RemoteLoader(urls, tensors=False, device="cpu")


def test_it_is_taken_for_a_loader_of_torch(loader) -> None:
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert len(loader) == 8
    seen = [int(number) for _, labels in loader for number in labels]
    assert sorted(seen) == list(range(64))


@pytest.mark.framework("accelerate")
def test_accelerate_takes_it_and_saves_its_state(loader, urls, tmp_path) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    prepared = accelerator.prepare(loader)
    whole = [labels.tolist() for _, labels in prepared]
    prepared.set_epoch(0)
    batches = iter(prepared)
    for _ in range(3):
        next(batches)
    state = prepared.state_dict()
    batches.close()
    with wds.RemoteLoader(urls, patience=60, job="again") as again:
        again.load_state_dict(state)
        assert [labels.tolist() for _, labels in again] == whole[3:]


@pytest.mark.slow
@pytest.mark.framework("lightning")
@pytest.mark.filterwarnings("ignore")  # what a framework thinks of its surroundings
def test_lightning_trains_with_it(loader, tmp_path) -> None:
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen: list[int] = []

        def training_step(self, batch, _number):
            x, labels = batch
            self.seen += labels.tolist()
            return self.layer(torch.as_tensor(x, dtype=torch.float32).reshape(-1, 1)).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    model = Model()
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=str(tmp_path), **quiet)
    trainer.fit(model, loader)
    assert sorted(model.seen) == sorted([*range(64)] * 2)


@pytest.mark.slow
@pytest.mark.framework("keras")
@pytest.mark.filterwarnings("ignore")  # what a framework thinks of its surroundings
def test_keras_trains_with_it(loader, monkeypatch) -> None:
    if "keras" not in sys.modules:
        monkeypatch.setenv("KERAS_BACKEND", "torch")
    import keras

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    pairs = loader.map(lambda batch: (torch.as_tensor(batch[0], dtype=torch.float32).reshape(-1, 1) / 64, batch[1]))
    assert model.fit(pairs, epochs=1, verbose=0).history["loss"][0] >= 0
