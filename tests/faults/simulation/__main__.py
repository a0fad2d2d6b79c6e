"""``python -m tests.faults.simulation [--mutant NAME] [--trace] [--calls] [--sql] [--aligned] FIRST [COUNT]``: run seeds; print the faults.

With a mutant the single steps come first, and what notices it first is enough. The exit code is 1 when there were violations.
"""

from __future__ import annotations

import sys
import time


def main(arguments: list[str]) -> int:
    trace = "--trace" in arguments
    calls, sql, aligned = "--calls" in arguments, "--sql" in arguments, "--aligned" in arguments
    arguments = [argument for argument in arguments if argument not in ("--trace", "--calls", "--sql", "--aligned")]
    mutant = ""
    if arguments[0] == "--mutant":
        mutant, arguments = arguments[1], arguments[2:]
    first, count = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    if mutant:
        return _tell(mutant, first, count)
    from tests.faults.simulation.seed import run_seed

    bad = 0
    started = time.process_time()
    for seed in range(first, first + count):
        verdict = run_seed(seed, calls=calls, sql=sql, aligned=aligned)
        if trace:
            print("\n".join(verdict.trace))
            print("digest", verdict.digest)
        if verdict.violations:
            bad += 1
            print(f"seed {seed}: " + "\n  ".join(verdict.violations[:4]), flush=True)
        if (done := seed + 1 - first) % 50 == 0 and done < count:  # what an interrupted run has shown
            print(f"{done} seeds, {bad} with violations so far", flush=True)
    print(f"{count} seeds, {bad} with violations, {time.process_time() - started:.1f} CPU seconds")
    return 1 if bad else 0


def _tell(mutant: str, first: int, count: int) -> int:
    from tests.faults.simulation.noticing import notice

    found = notice(mutant, first, count)
    print(f"the mutant is broken: {found.broken}\n{found.what}" if found.broken else found.what or "nothing notices it")
    return 1 if found.what or found.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
