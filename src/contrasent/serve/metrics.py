"""What the server counts, in the format of Prometheus; nothing is sent anywhere."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "contrasent"
        self.requests = Counter(
            f"{name}_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            f"{name}_request_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.active = Gauge(f"{name}_active_requests", "Requests at work.", registry=self.registry)
        self.waiting = Gauge(
            f"{name}_queue_tokens", "Tokens that wait for a batch.", registry=self.registry
        )
        self.tokens = Counter(f"{name}_tokens", "Tokens encoded.", registry=self.registry)
        self.inputs = Counter(f"{name}_inputs", "Texts encoded.", registry=self.registry)
        self.truncated = Counter(
            f"{name}_truncated_inputs", "Texts cut at the longest input.", registry=self.registry
        )
        self.batch_seconds = Histogram(
            f"{name}_batch_seconds",
            "Time of a forward pass.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batch_rows = Histogram(
            f"{name}_batch_rows",
            "Texts in a forward pass.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            registry=self.registry,
        )

    def batch(self, rows: int, tokens: int, seconds: float) -> None:
        """A batch is done."""
        self.inputs.inc(rows)
        self.tokens.inc(tokens)
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """All of it, as /metrics shows it."""
        return generate_latest(self.registry)
