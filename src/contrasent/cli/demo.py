"""placeholder"""


def demo() -> None:
    """Run."""
