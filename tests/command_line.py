"""Command lines as key words."""


def cli(**options):
    """Arguments of a command: ``cli(max_update=2, cpu=True, s="en")`` is ["--max-update", 2, "--cpu", "-s", "en"]."""
    arguments = []
    for name, value in options.items():
        arguments.append(("--" if len(name) > 1 else "-") + name.replace("_", "-"))
        if value is not True:
            arguments.append(value)
    return arguments
