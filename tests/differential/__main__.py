"""``python -m tests.differential SEED``: one history, with what happens in it."""

from __future__ import annotations

import argparse

from tests.differential.run import run_one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--managed", action="store_true", help="a high watermark that is managed")
    parser.add_argument("--damage-in-active", action="store_true", help="also of readers in other processes")
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from the first one on")
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.count):
        result = run_one(
            seed,
            manages_high_watermark=options.managed,
            damages_active=options.damage_in_active,
            says=print if options.count == 1 else None,
        )
        if options.count == 1:
            print(result)


main()
