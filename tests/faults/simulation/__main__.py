"""``python -m tests.faults.simulation [--mutant NAME] [--trace] FIRST [COUNT]``: run the single steps, then seeds; print what went wrong.

With a mutant the first that notices it is enough. The exit code is 1 when there were violations.
"""

from __future__ import annotations

import sys
import time


def main(arguments: list[str]) -> int:
    trace = "--trace" in arguments
    arguments = [argument for argument in arguments if argument != "--trace"]
    first_only = False
    if arguments[0] == "--mutant":
        from tests.faults.mutants import install

        install(arguments[1])
        arguments = arguments[2:]
        first_only = True
    from tests.faults.simulation.scenario import run_seed
    from tests.faults.simulation.steps import STEPS

    if first_only:
        for name, step in STEPS.items():
            try:
                step()
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}"[:300])
                return 1
    first, count = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    bad = 0
    started = time.process_time()
    for seed in range(first, first + count):
        verdict = run_seed(seed)
        if trace:
            print("\n".join(verdict.trace))
            print("digest", verdict.digest)
        if verdict.violations:
            bad += 1
            print(f"seed {seed}: " + "\n  ".join(verdict.violations[:4]))
            if first_only:
                return 1
    print(f"{count} seeds, {bad} with violations, {time.process_time() - started:.1f} CPU seconds")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
