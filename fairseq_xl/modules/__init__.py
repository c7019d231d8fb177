"""The parts that models are built from; they know tensors, not tasks or files."""
