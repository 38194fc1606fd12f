"""What the benchmarks share: seconds and memory of a function in its own process, and a line on the machine."""

import multiprocessing
import os
import platform
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path


def in_new_process(prepare, function, *arguments, core=None):
    """Call function(prepare(*arguments)) in a new process; returns its seconds, its peak memory in MB and its result.

    Only the call of function counts: memory is what the process holds above what it held after prepare (Linux).
    core: run on this one core only.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(sender, core, prepare, function, arguments))
    process.start()
    sender.close()  # so that a process that fails ends the wait below
    try:
        return receiver.recv()
    finally:
        process.join()


def _measured(sender, core, prepare, function, arguments):
    if core is not None:
        os.sched_setaffinity(0, {core})
    prepared = prepare(*arguments)
    before = reset_peak_memory()
    start = time.perf_counter()
    result = function(prepared)
    seconds = time.perf_counter() - start
    sender.send((seconds, peak_memory() - before, result))


def memory(field):
    """A field of /proc/self/status in MB: VmRSS is held now, VmHWM was held at the most."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def reset_peak_memory():
    """Let the peak count from now on; returns MB held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def peak_memory():
    return memory("VmHWM")


def print_machine(*packages):
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"{package} {version(package)}" for package in ("numpy", *packages)]
    print(f"{os.cpu_count()} cores, {gigabytes:.0f} GiB, {date.today()}, Python {platform.python_version()}, ", end="")
    print(*versions, sep=", ")
