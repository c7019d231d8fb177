"""Readers of binarised text, framing, noise and the plan of what is drawn when. Imports nothing else of the plugin."""
