"""Models side by side on several devices, in full and half precision."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import kernel
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

SCRIPT = Path(__file__).parent / "train_on_devices.py"
RUNS = {  # name: workers, precision, models
    "one": ("1", "float32", "5"),
    "two": ("2", "float32", "3"),
    "half": ("1", "mixed_float16", "2"),
    "two, half": ("2", "mixed_float16", "2"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """{run: what train_on_devices.py saved}, from processes of their own, two side by side."""
    folder, environment = tmp_path_factory.mktemp("devices"), os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    commands = [[sys.executable, SCRIPT, *arguments, folder / f"{name}.npz"] for name, arguments in RUNS.items()]
    for pair in (commands[:2], commands[2:]):
        processes = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for command in pair]
        assert [process.wait() for process in processes] == [0, 0]
    return {name: dict(np.load(folder / f"{name}.npz")) for name in RUNS}


@pytest.mark.parametrize("one, two", [("one", "two"), ("half", "two, half")])
def test_models_side_by_side_are_those_of_one_after_the_other(trained, one, two):
    for values in ("scores", "losses"):
        models = len(trained[two][values])
        assert np.allclose(trained[two][values], trained[one][values][:models], rtol=0, atol=1e-5), values
    assert np.ptp(trained[one]["scores"], axis=0).max() > 0.01  # the models differ


@pytest.mark.parametrize("run", ["two", "two, half"])
def test_each_device_trains_models_of_its_own_while_the_other_does(trained, run):
    model, device, begun = trained[run]["seen"].T
    devices = [{*device[model == of_model]} for of_model in dict.fromkeys(model)]  # in the order of their first steps
    assert all(len(of_model) == 1 for of_model in devices) and devices[0] != devices[1]
    first, second = (begun[model == of_model] for of_model in [*dict.fromkeys(model)][:2])
    assert first.min() < second.max() and second.min() < first.max()


@pytest.mark.parametrize("run", RUNS)
def test_training_lowers_the_loss(trained, run):
    losses = trained[run]["losses"]
    assert (losses[:, -1] < losses[:, 0]).all()


def test_half_precision_learns_as_much_and_saves_weights_in_float32(trained):
    scores = {name: trained[name]["scores"][0] for name in ("one", "half")}
    aucs = [roc_auc_score(trained["one"]["toxic"], of_run) for of_run in scores.values()]
    assert aucs[0] > 0.8 and aucs[1] == pytest.approx(aucs[0], abs=0.02)
    assert abs(scores["half"] - scores["one"]).max() > 1e-6  # it was half precision
    assert {*trained["half"]["dtypes"]} == {"float32", "float64"}  # the losses are Python's


def test_memory_does_not_grow_from_model_to_model(trained):
    """Peak memory of the process after each of five models, in kilobytes: the first ones build what all share."""
    peaks = trained["one"]["peaks"]
    assert peaks[-1] < 1.05 * peaks[2]


def test_jupyters_stop_button_ends_the_training_and_not_the_run():
    """An interrupt while the workers train: they are told to stop, and what they have trained counts."""
    ensemble = kernel.Ensemble(kernel.Settings(epochs=5, models=9), 0, *[None] * 6)

    def train_models(ensemble, *others):
        assert ensemble.stop.wait(60)
        ensemble.scores["model_1"], ensemble.losses["model_1"] = [0.5], [0.5]

    names = vars(kernel) | {"devices": ["cpu:0"], "pretrained": [None], "ensemble": ensemble}
    names |= {"settings": ensemble.settings, "train_models": train_models}
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.warns(UserWarning, match="too short"):
        kernel.run_cell(kernel.number_of_cell("ThreadPoolExecutor("), names)
    signal.signal(signal.SIGINT, handler)
    assert names["stopped_because"] == "interrupted"


@pytest.fixture
def gpus(monkeypatch):
    """A function that lets TensorFlow find GPUs with these compute capabilities."""

    def put(*capabilities):
        monkeypatch.setattr(
            kernel.tf.config, "list_physical_devices", lambda kind: capabilities if kind == "GPU" else []
        )
        details = kernel.tf.config.experimental
        monkeypatch.setattr(details, "get_device_details", lambda capability: {"compute_capability": capability})
        monkeypatch.setattr(kernel.keras.config, "set_dtype_policy", policies.append)

    policies = []
    return put, policies


@pytest.mark.parametrize(
    "workers, expected", [(0, ["gpu:0", "gpu:1"]), (1, ["gpu:0"]), (2, ["gpu:0", "gpu:1"]), (3, ["gpu:0", "gpu:1"])]
)
def test_a_worker_for_each_gpu_or_fewer(gpus, workers, expected):
    gpus[0]((7, 5), (7, 5))
    assert kernel.find_devices(workers) == expected


@pytest.mark.parametrize(
    "capability, policies", [((7, 5), ["mixed_float16"]), ((8, 0), ["mixed_float16"]), ((6, 0), [])]
)
def test_gpus_with_tensor_cores_compute_in_half_precision(gpus, capability, policies):
    gpus[0](capability, (9, 0))
    kernel.find_devices(0)
    assert gpus[1] == policies


def test_without_a_gpu_logical_cpus_are_used():
    script = "import sys; sys.path.insert(0, 'tests'); import kernel; print(*kernel.find_devices(int(sys.argv[1])))"
    for workers, expected in (("0", "cpu:0"), ("2", "cpu:0 cpu:1")):
        command = [sys.executable, "-c", script, workers]
        done = subprocess.run(command, cwd=kernel.NOTEBOOK.parent, capture_output=True, text=True, check=True)
        assert done.stdout.split("\n")[-2] == expected
