"""An HTTP server and its page: an ``EncodeFn`` in two steps goes in; no model is known here."""
