"""Programs for a run to promote from: one that deserves it, one that is spoilt, a weak one."""

from __future__ import annotations

from support.programs import climber_program, random_program

# Climbs where it was trained, and gives up on anything else.
SPOILT = (
    climber_program(8)
    .replace("Climber", "Spoilt")
    .replace(
        "        configs = space.sample(self.start)\n",
        "        if max(space.values[0]) > 256:\n"
        "            raise ValueError('never seen such a block')\n"
        "        configs = space.sample(self.start)\n",
    )
)
WEAK = random_program(7)
STRONG, SPOILT_SLOT, WEAK_SLOT = 0, 1, 2
PROGRAMS = (climber_program(6), SPOILT, WEAK)
