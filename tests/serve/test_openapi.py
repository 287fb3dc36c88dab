"""Schemathesis on the server's own description finds nothing; every answer is described."""

import logging

import pytest

schemathesis = pytest.importorskip("schemathesis")
GOOD, BAD = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
LIMITS = {"invalid_token", "dimensions", "too_many_inputs"}
"""Codes of limits of this model and server, which the description does not know."""


def call_good(case):
    """Send a request that the description allows; a limit, filter or threshold may reject it."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    excluded = [positive_data_acceptance] if case.method == "POST" else []
    answer = case.call_and_validate(excluded_checks=excluded)
    if excluded and answer.status_code == 400:
        code = answer.json()["error"]["code"]
        stated = case.body.get("where"), case.body.get("threshold")
        filtered = code == "invalid" and stated != (None, None)
        assert filtered or code in LIMITS, answer.text


def call_many(strategy, call):
    """Send a dozen requests, where any can be made; return their number."""
    from hypothesis import HealthCheck, Phase, given, settings

    sent = []

    @settings(
        max_examples=12, deadline=None, database=None, phases=[Phase.generate], derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=strategy)
    def check(case):
        sent.append(case)
        call(case)

    try:
        check()
    except BaseException as error:
        if type(error).__name__ not in ("SkipTest", "Unsatisfiable", "Skipped"):
            raise
    return len(sent)


@pytest.mark.slow
def test_schemathesis_finds_nothing(address):
    """Requests made from the description, good and bad: no 5xx, no answer it does not describe."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert sorted((o.method.upper(), o.path) for o in operations) == [
        ("GET", "/facets"), ("GET", "/health"), ("GET", "/metrics"), ("GET", "/v1/models"),
        ("GET", "/v1/models/{name}"), ("POST", "/search"), ("POST", "/similarity"),
        ("POST", "/v1/embeddings"),
    ]  # fmt: skip
    sent = 0
    for operation in operations:
        sent += call_many(operation.as_strategy(generation_mode=GOOD), call_good)
        sent += call_many(
            operation.as_strategy(generation_mode=BAD), lambda case: case.call_and_validate()
        )
    assert sent > 80
