"""``python -m contrasent`` is the same as ``contrasent``."""

from contrasent.cli import main

if __name__ == "__main__":
    main()
