"""P3IV: a transformer decoder with learned memory and noise, taught by the names of actions."""
