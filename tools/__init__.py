"""What builds the documentation and the release."""
