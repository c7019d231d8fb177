"""The training loop: `main` reads from the start of a process to its end, `trainer` is an update."""
