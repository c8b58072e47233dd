"""``python -m tests.differential SEED``: one history, with what happens in it; or how many there were."""

from __future__ import annotations

import argparse
import time

from tests.differential.run import Tried, run_one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--managed", action="store_true", help="a high watermark that is managed")
    parser.add_argument("--damage-in-active", action="store_true", help="also of readers in other processes")
    parser.add_argument("--count", type=int, default=1, help="so many seeds, from the first one on")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no new seed after that time")
    options = parser.parse_args()
    until, tried = time.monotonic() + options.minutes * 60, Tried()
    for seed in range(options.seed, options.seed + options.count):
        result = run_one(
            seed,
            manages_high_watermark=options.managed,
            damages_active=options.damage_in_active,
            says=print if options.count == 1 else None,
        )
        tried = Tried(*map(sum, zip(tried, result, strict=True)))
        if time.monotonic() > until:
            break
    print(tried)


main()
