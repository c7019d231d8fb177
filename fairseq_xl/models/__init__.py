"""Models; importing this registers the architectures."""

from fairseq_xl.models import architectures  # noqa: F401
