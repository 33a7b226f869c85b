"""`make fuzz`, `python -m tests --fuzz N`: many hostile inputs at every door, with a seed that repeats the run.

Belongs here: argv and the summary. Never: a case.
"""

import argparse
import logging
import secrets
import signal
import sys
from collections.abc import Sequence

from tests.fuzz.doors import all_doors
from tests.fuzz.run import Run


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="how many cases in all (100000)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the run of this seed; default: a new one")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each door")
    parser.add_argument("--door", action="append", help="only this door; repeatable")
    options = parser.parse_args(arguments)
    for name, least in (("cases", 1), ("first", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name} is {getattr(options, name)}; it must be at least {least}")
    doors = {door.name: door for door in all_doors()}
    for name in options.door or ():
        if name not in doors:
            parser.error(f"there is no door {name!r}; there are {', '.join(doors)}")
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    chosen = [door for name, door in doors.items() if not options.door or name in options.door]
    say(f"{options.cases:,} cases at {len(chosen)} doors, seed {seed}: the same again with --seed {seed}")
    logging.getLogger("accelshare").setLevel(logging.CRITICAL)  # damaged input is logged
    run = Run(seed, say=say, doors=chosen)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the table is printed then, too
    clean = False
    try:
        clean = run.play_all(options.cases, options.first)
    except KeyboardInterrupt:
        say("interrupted")
    say(run.table())
    return 0 if clean else 1


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
