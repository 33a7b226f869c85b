"""Benchmarks on the real control plane: `python -m bench` measures, says how noisy it was, and writes docs/benchmarks.md.

Belongs here: measuring what users pay for (throughput, CPU, memory, start-up, waiting), each as a ratio within one run wherever
there is something to compare with. Never: pass or fail of a test run (a machine's mood is no bug), numbers not measured.

The pure parts (figures, procfs, tables, goals, page, document, workload) do no I/O; scene puts the cluster up; throughput, calls,
growth, crowd, first_byte and scrape each measure one thing.
"""
