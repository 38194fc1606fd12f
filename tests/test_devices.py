"""Models side by side on several devices, in full and half precision; workers that fail; GPUs that are not seen."""

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
    "one": ("1", "float32", "6"),
    "two": ("2", "float32", "3"),
    "half": ("1", "mixed_float16", "2"),
    "two, half": ("2", "mixed_float16", "2"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """{run: what train_on_devices.py saved}, from processes of their own, side by side."""
    folder, environment = tmp_path_factory.mktemp("devices"), os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    commands = [[sys.executable, SCRIPT, *arguments, folder / f"{name}.npz"] for name, arguments in RUNS.items()]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for command in commands]
    assert [process.wait() for process in processes] == [0] * len(RUNS)
    return {name: dict(np.load(folder / f"{name}.npz")) for name in RUNS}


@pytest.mark.parametrize("one, two", [("one", "two"), ("half", "two, half")])
def test_models_side_by_side_are_those_of_one_after_the_other(trained, one, two):
    for values in ("logits", "losses", "epochs"):
        models = len(trained[two][values])
        assert np.allclose(trained[two][values], trained[one][values][:models], rtol=0, atol=1e-5), values
    assert np.ptp(trained[one]["logits"], axis=0).max() > 0.01  # the models differ


@pytest.mark.parametrize("run", ["two", "two, half"])
def test_each_device_trains_models_of_its_own_while_the_other_does(trained, run):
    number, device, variable, begun, ended = trained[run]["seen"].T
    assert set(device) == {0, 1}
    assert np.array_equal(device, variable)
    assert all(len(set(device[number == model])) == 1 for model in set(number))
    first, second = (number == 0), (number == 1)
    assert device[first][0] != device[second][0]
    assert begun[first].min() < ended[second].max() and begun[second].min() < ended[first].max()


@pytest.mark.parametrize("run", RUNS)
def test_training_lowers_the_loss(trained, run):
    losses = trained[run]["losses"]
    assert (losses[:, -1] < losses[:, 0]).all()


def test_half_precision_keeps_weights_and_scores_in_float32(trained):
    assert trained["half"]["compute_dtype"] == "float16"
    assert set(trained["half"]["dtypes"]) == {"float32"} and trained["half"]["scored_in"] == "float32"


def test_half_precision_learns_as_much(trained):
    logits = {name: trained[name]["logits"][0] for name in ("one", "half")}
    aucs = [roc_auc_score(trained["one"]["toxic"], of_run) for of_run in logits.values()]
    assert aucs[0] > 0.8 and aucs[1] == pytest.approx(aucs[0], abs=0.02)
    assert abs(logits["half"] - logits["one"]).max() > 1e-6  # it was half precision


def test_memory_does_not_grow_from_model_to_model(trained):
    """Peak memory of the process after each of six models, in kilobytes: the first ones build what all share."""
    peaks = trained["one"]["peaks"]
    assert peaks[-1] < 1.05 * peaks[2]


def side_by_side(*functions, interrupted=None):
    return kernel.side_by_side(["cpu"] * len(functions), functions, interrupted or threading.Event())


def counting(*results):
    """A function that gives the results one by one, raises those that are errors, and gives None after the last."""
    results = iter(results)

    def give():
        result = next(results, None)
        if isinstance(result, Exception):
            raise result
        return result

    return give


def test_everything_that_the_workers_give_comes_back():
    assert sorted(side_by_side(counting(1, 2, 3), counting(), counting(4))) == [1, 2, 3, 4]


def test_a_worker_that_fails_leaves_the_models_of_the_others_and_a_warning():
    with pytest.warns(UserWarning, match="worker failed.*out of memory"):
        assert sorted(side_by_side(counting(1, MemoryError("out of memory")), counting(2, 3))) == [1, 2, 3]


def test_if_all_workers_fail_before_they_gave_anything_the_error_is_raised():
    with pytest.raises(MemoryError, match="first|second"), pytest.warns(UserWarning):
        list(side_by_side(counting(MemoryError("first")), counting(MemoryError("second"))))


def test_an_interrupt_lets_the_workers_end_and_a_second_one_does_not_wait():
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    interrupted, released = threading.Event(), threading.Event()
    waits = [(released, "too late"), (interrupted, "cut short")]

    def train_next():
        event, result = waits.pop()
        event.wait(60)
        return result

    def press_stop():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    given = side_by_side(train_next, interrupted=interrupted)
    threading.Timer(0.3, press_stop).start()
    assert next(given) == "cut short"
    threading.Timer(0.3, press_stop).start()
    with pytest.raises(KeyboardInterrupt):
        next(given)
    released.set()
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def driver_lists(tmp_path, monkeypatch):
    """A function that puts an nvidia-smi on the path which prints the given text."""

    def put(text):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<END\n{text}\nEND\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return put


def test_a_gpu_that_is_there_and_not_seen_is_an_error(driver_lists):
    driver_lists("GPU 0: Tesla T4 (UUID: GPU-1)\nGPU 1: Tesla T4 (UUID: GPU-2)")
    with pytest.raises(RuntimeError, match=r"tensorflow sees no GPU.*Tesla T4.*Tesla T4.*KERNEL_GPU=no"):
        kernel.find_devices(None, use_gpu=None)
    assert kernel.find_devices(None, use_gpu=False) == ["cpu:0"]


def test_a_backend_that_would_train_wrongly_is_refused(monkeypatch):
    monkeypatch.setattr(kernel.keras.config, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="KERAS_BACKEND"):
        kernel.find_devices(None, use_gpu=None)


def test_without_a_gpu_the_cpu_is_used_unless_a_gpu_is_asked_for(driver_lists):
    driver_lists("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    assert kernel.find_devices(None, use_gpu=None) == ["cpu:0"]
    with pytest.raises(RuntimeError, match="sees no GPU"):
        kernel.find_devices(None, use_gpu=True)


@pytest.mark.parametrize("workers, expected", [(None, ["gpu:0", "gpu:1"]), (1, ["gpu:0"]), (2, ["gpu:0", "gpu:1"])])
def test_a_worker_for_each_gpu_or_fewer(monkeypatch, workers, expected):
    monkeypatch.setattr(kernel, "gpus_of_backend", lambda: ["gpu:0", "gpu:1"])
    monkeypatch.setattr(kernel.keras.config, "backend", lambda: "torch")  # TensorFlow's devices are fixed by now
    assert kernel.find_devices(workers, use_gpu=None) == expected


def test_more_workers_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(kernel, "gpus_of_backend", lambda: ["gpu:0", "gpu:1"])
    monkeypatch.setattr(kernel.keras.config, "backend", lambda: "torch")
    with pytest.raises(ValueError, match="KERNEL_WORKERS=3, but there are 2 GPUs: gpu:0, gpu:1"):
        kernel.find_devices(3, use_gpu=None)


def test_asking_for_the_cpu_hides_the_gpus_before_any_package_is_imported(monkeypatch):
    first = next(cell for cell in kernel.CELLS if cell["cell_type"] == "code")
    monkeypatch.setenv("KERNEL_GPU", "no")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    exec("".join(first["source"]), {})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"
