"""A shop of processes on this machine: discover, start, supervise, stop."""
