"""Real processes on real kernels: killed, stopped, cut from power, out of disk, out of time."""
