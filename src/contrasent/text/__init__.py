"""Where sentences come from and what is done to them; numpy only, no torch."""
