"""An HTTP server and its page: a model goes in, and an index if there is one."""
