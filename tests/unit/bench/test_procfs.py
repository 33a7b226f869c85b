"""Reading CPU and memory from /proc."""

import os
import sys
import time

import pytest

from bench.procfs import busy_ticks, cpu_model, cpu_s, kib, load_of, private_of

STATUS = "Name:\tpython\nVmPeak:\t  200000 kB\nVmHWM:\t   61440 kB\nVmRSS:\t   51200 kB\nThreads:\t3\n"
ROLLUP = "5580cf4ea000-7ffc5f1c8000 ---p 00000000 00:00 0      [rollup]\nRss:   13592 kB\nPss:    8394 kB\nPss_Dirty:   6864 kB\n"
CPUINFO = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R)  Xeon(R) Processor\n\nprocessor\t: 1\n"


def test_a_line_in_kb_is_that_many_times_1024_bytes() -> None:
    assert kib(STATUS, "VmRSS") == 51200 * 1024


def test_a_key_is_taken_whole() -> None:
    """Pss is not Pss_Dirty."""
    assert kib(ROLLUP, "Pss") == 8394 * 1024


def test_a_missing_line_is_named() -> None:
    with pytest.raises(ValueError, match="no line 'VmSwap: … kB'"):
        kib(STATUS, "VmSwap")


def test_the_first_processor_names_the_machine() -> None:
    assert cpu_model(CPUINFO) == "Intel(R) Xeon(R) Processor"


def test_a_machine_without_a_model_name_is_unknown() -> None:
    assert cpu_model("processor\t: 0\n") == "unknown"


def test_what_is_neither_idle_nor_waiting_is_busy() -> None:
    assert busy_ticks("cpu  100 2 30 9999 888 4 5 6 77 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n") == 147


def test_the_load_is_the_last_minutes() -> None:
    assert load_of("1.49 3.77 3.22 5/138 13469\n") == 1.49


@pytest.mark.skipif(sys.platform != "linux", reason="process clocks of other processes are Linux's")
def test_a_process_clock_is_the_kernels_own() -> None:
    """Read from outside by its pid, our own CPU time is what we know it to be."""
    before = time.process_time()
    outside = cpu_s(os.getpid())
    assert before <= outside <= time.process_time()


def test_private_pages_are_clean_and_dirty_ones() -> None:
    rollup = "Rss:     900 kB\nShared_Clean:   500 kB\nPrivate_Clean:    3 kB\nPrivate_Dirty:    4 kB\n"
    assert private_of(rollup) == 7 * 1024
