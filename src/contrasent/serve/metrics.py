"""What the server counts, in the format of Prometheus; nothing is sent anywhere."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"contrasent_{name}", about, labels, registry=self.registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"contrasent_{name}", about, registry=self.registry)

        def histogram(
            name: str, about: str, *labels: str, buckets: Sequence[float] = SECONDS
        ) -> Histogram:
            name = f"contrasent_{name}"
            return Histogram(name, about, labels, buckets=buckets, registry=self.registry)

        self.requests = counter("requests", "Requests answered.", "method", "route", "status")
        about = "Time from the first byte of a request to the last of its answer."
        self.seconds = histogram("request_seconds", about, "route")
        self.active = gauge("active_requests", "Requests at work.")
        self.waiting = gauge("queue_tokens", "Tokens that wait for a batch.")
        self.tokens = counter("tokens", "Tokens encoded.")
        self.inputs = counter("inputs", "Texts encoded.")
        self.truncated = counter("truncated_inputs", "Texts cut at the longest input.")
        self.batch_seconds = histogram("batch_seconds", "Time of a forward pass.")
        self.batch_rows = histogram("batch_rows", "Texts in a forward pass.", buckets=ROWS)

    def batch(self, rows: int, tokens: int, seconds: float) -> None:
        """A batch is done."""
        self.inputs.inc(rows)
        self.tokens.inc(tokens)
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """All of it, as /metrics shows it."""
        return generate_latest(self.registry)
