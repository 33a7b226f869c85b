"""Benchmarks on the real control plane: `python -m bench` measures, reports the noise, and writes docs/benchmarks.md.

Belongs here: measuring throughput, CPU, memory, start-up and latency, as ratios within one run where a comparison exists.
Never: failing a test run (results depend on the machine), numbers that were not measured.

The pure parts (figures, procfs, tables, goals, page, document, workload) do no I/O; scene sets up the cluster; throughput, calls,
growth, crowd, first_byte and scrape each measure one thing.
"""
