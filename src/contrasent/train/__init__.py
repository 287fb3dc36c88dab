"""How it is learnt: the loop, its schedule, its checkpoints and its alarms."""
