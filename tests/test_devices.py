"""Networks side by side on several devices, in full and half precision."""

import os
import subprocess
import sys
from pathlib import Path

import kernel
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

SCRIPT = Path(__file__).parent / "train_on_devices.py"
RUNS = {  # name: workers, precision, networks
    "one": ("1", "float32", "5"),
    "two": ("2", "float32", "3"),
    "half": ("1", "mixed_float16", "2"),
    "two, half": ("2", "mixed_float16", "2"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """{run: what train_on_devices.py saved}, from processes of their own, two side by side."""
    folder, quiet = tmp_path_factory.mktemp("devices"), {"TF_CPP_MIN_LOG_LEVEL": "3"}
    commands = []
    for name, arguments in RUNS.items():
        commands.append([sys.executable, SCRIPT, *arguments, folder / f"{name}.npz"])
    options = {"env": os.environ | quiet, "stdout": subprocess.DEVNULL}
    for pair in (commands[:2], commands[2:]):
        processes = [subprocess.Popen(command, **options) for command in pair]
        assert [process.wait() for process in processes] == [0, 0]
    return {name: dict(np.load(folder / f"{name}.npz")) for name in RUNS}


@pytest.mark.parametrize("one, two", [("one", "two"), ("half", "two, half")])
def test_networks_side_by_side_are_those_of_one_after_the_other(trained, one, two):
    for values in ("scores", "losses"):
        networks = len(trained[two][values])
        alone = trained[one][values][:networks]
        assert np.allclose(trained[two][values], alone, rtol=0, atol=1e-5), values
    assert np.ptp(trained[one]["scores"], axis=0).max() > 0.01  # the networks differ


@pytest.mark.parametrize("run", ["two", "two, half"])
def test_each_device_trains_networks_of_its_own_while_the_other_does(trained, run):
    network, device, begun = trained[run]["seen"].T
    first, second = [*dict.fromkeys(network)][:2]  # in the order of their first steps
    devices = [{*device[network == of]} for of in (first, second)]
    assert sorted(devices, key=list) == [{0}, {1}]
    times = [begun[network == of] for of in (first, second)]
    assert times[0].min() < times[1].max() and times[1].min() < times[0].max()


@pytest.mark.parametrize("run", RUNS)
def test_training_lowers_the_loss(trained, run):
    losses = trained[run]["losses"]
    assert (losses[:, -1] < losses[:, 0]).all()


def test_half_precision_learns_as_much_and_saves_weights_in_float32(trained):
    scores = {name: trained[name]["scores"][0] for name in ("one", "half")}
    full, half = (roc_auc_score(trained["one"]["toxic"], of_run) for of_run in scores.values())
    assert full > 0.8 and half == pytest.approx(full, abs=0.02)
    assert abs(scores["half"] - scores["one"]).max() > 1e-6  # it was half precision
    assert {*trained["half"]["dtypes"]} == {"float32"}


def test_memory_does_not_grow_from_network_to_network(trained):
    """Peak memory after each of five, in kilobytes: the first ones build what all share."""
    peaks = trained["one"]["peaks"]
    assert len(peaks) == 5 and peaks[-1] < 1.05 * peaks[2]


@pytest.fixture
def gpus(monkeypatch):
    """A function that lets TensorFlow find GPUs of these compute capabilities; the policies set."""
    policies, config = [], kernel.tf.config

    def put(*capabilities):
        def find(kind):
            return capabilities if kind == "GPU" else []

        def details(capability):
            return {"compute_capability": capability}

        monkeypatch.setattr(config, "list_physical_devices", find)
        monkeypatch.setattr(config.experimental, "get_device_details", details)
        monkeypatch.setattr(kernel.keras.config, "set_dtype_policy", policies.append)

    return put, policies


WORKERS = [(None, ["gpu:0", "gpu:1"]), (1, ["gpu:0"]), (3, ["gpu:0", "gpu:1"])]


@pytest.mark.parametrize("workers, expected", WORKERS)
def test_a_worker_for_each_gpu_or_fewer(gpus, workers, expected):
    gpus[0]((7, 5), (7, 5))
    assert kernel.find_devices(workers) == expected


@pytest.mark.parametrize("capability, half", [((7, 5), True), ((8, 0), True), ((6, 0), False)])
def test_gpus_with_tensor_cores_compute_in_half_precision(gpus, capability, half):
    gpus[0](capability, (9, 0))
    kernel.find_devices(None)
    assert gpus[1] == ["mixed_float16"] * half


def test_without_a_gpu_logical_cpus_are_used():
    script = "import sys; sys.path.insert(0, 'tests'); import kernel; "
    script += "print(*kernel.find_devices(eval(sys.argv[1])))"
    for workers, expected in (("None", "cpu:0"), ("2", "cpu:0 cpu:1")):
        command, root = [sys.executable, "-c", script, workers], kernel.NOTEBOOK.parent
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        assert done.stdout.split("\n")[-2] == expected
