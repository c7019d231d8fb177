"""Work on checkpoints outside of training: pure functions on state dicts, and the commands around them."""
