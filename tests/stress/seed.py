"""What chance begins with: a new number in each run, which a failure prints, or `STRESS_SEED`, which makes it again."""

import os
import random


def new_seed() -> int:
    return int(os.environ.get("STRESS_SEED") or random.SystemRandom().randrange(1 << 32))
