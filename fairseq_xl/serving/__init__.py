"""Models as ONNX files: export, checks against torch, 8-bit weights, beam search. The command is `model export`."""
