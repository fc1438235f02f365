"""The damage done for real: processes, signals, full disks and sockets."""
