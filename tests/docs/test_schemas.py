"""What commands print with --json, and what folders hold, is what docs/schemas say."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from commands import run
from doc_pages import ROOT

SCHEMAS = {p.stem: json.loads(p.read_text()) for p in (ROOT / "docs" / "schemas").glob("*.json")}

PRINTED = {
    "train": "train pairs.csv -o m --set max_steps=2", "adapt": "adapt handbook/ -o s --budget 10s",
    "encode": "encode my-model notes.txt -o v.npy",
    "encode-shards": "encode my-model notes.txt -o vs --shard 1/1",
    "similarity": "similarity my-model a b",
    "index": "index notes.jsonl --model my-model -o ix --id id --metadata *",
    "search": "search ix boats -k 2", "dedupe": "dedupe my-index", "doctor": "doctor my-model",
    "export": "export my-model --to onnx", "compare": "compare other.json mine.json",
    "diff": "diff my-model other-model --on my-index", "index-remove": "index ix --remove note-3",
    "index-model": "index my-index --model other-model",
}  # fmt: skip
WRITTEN = {"evaluate": "mine.json", "evaluate-list": "list.json"}
WRITTEN |= {f"run-{name}": f"m/run/{name}.json" for name in ("result", "settings")}


def check(name, found):
    jsonschema_rs.validator_for(SCHEMAS[name]).validate(found)


@pytest.mark.slow
def test_every_printed_and_written_json_is_as_its_schema_says(page_folder):
    rated = ("--pairs", "ratings.csv", "--columns", "first,second,rating")
    for name, model in (("mine", "my-model"), ("other", "other-model")):
        run("evaluate", model, *rated, "--json-file", f"{name}.json")
    run("evaluate", "--list", "--json-file", "list.json")
    for name, line in PRINTED.items():
        check(name, json.loads(run(*line.split(), "--json")))
    for name, path in WRITTEN.items():
        check(name, json.loads(Path(path).read_text("utf-8")))
    check("export", json.loads(Path("my-model/onnx/export.json").read_text("utf-8")))
    checked = run("train", "notes.txt", "--check", "--objective", "simcse", "--json")
    check("train", json.loads(checked))
    check("adapt", json.loads(Path("s/report.json").read_text("utf-8")))


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_a_schema_says_what_each_key_is(name):
    schema = SCHEMAS[name]
    jsonschema_rs.meta.validate(schema)
    assert schema["title"]
    assert schema["description"].endswith(".")
    rows = schema.get("items", schema)
    for key, one in rows.get("properties", {}).items():
        assert one["description"], key
    if rows.get("required"):
        with pytest.raises(jsonschema_rs.ValidationError):
            check(name, [{}] if schema["type"] == "array" else {})


def test_every_json_that_is_checked_has_one_and_no_other():
    assert SCHEMAS.keys() == PRINTED.keys() | WRITTEN.keys()
