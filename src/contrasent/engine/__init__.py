"""The parts of training methods: all that a method in a file of your own needs."""

from contrasent.errors import exports

__all__, __getattr__, __dir__ = exports(__name__)
