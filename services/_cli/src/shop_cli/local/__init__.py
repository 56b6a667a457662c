"""Run a shop as processes on this machine: discover programs, start, supervise and stop them."""
