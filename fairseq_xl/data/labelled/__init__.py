"""Labelled examples and their inputs."""
