"""Schemathesis on the server's own description finds nothing; every answer is described."""

import logging

import pytest

schemathesis = pytest.importorskip("schemathesis")


@pytest.mark.slow
def test_schemathesis_finds_nothing(address):
    """Requests made from the description, good and bad: no 5xx, no answer it does not describe."""
    from hypothesis import HealthCheck, Phase, given, settings

    logging.getLogger("httpx").setLevel(logging.WARNING)
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert sorted((o.method.upper(), o.path) for o in operations) == [
        ("GET", "/health"),
        ("GET", "/map"),
        ("GET", "/metrics"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/{name}"),
        ("POST", "/search"),
        ("POST", "/similarity"),
        ("POST", "/v1/embeddings"),
    ]
    asked = 0
    for operation in operations:
        for mode in schemathesis.GenerationMode:

            @settings(
                max_examples=25,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case):
                nonlocal asked
                asked += 1
                case.call_and_validate()

            try:
                check()
            except BaseException as error:
                if type(error).__name__ not in ("SkipTest", "Unsatisfiable", "Skipped"):
                    raise
    assert asked > 200
