"""The page in a real browser: type, click, read; keyboard, phone, dark and light."""

import json
import os
import re
import shutil

import pytest
from serving import LINES, post_to, running

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

NEEDS = "pip install 'contrasent[browser]', and a Chromium on the path or named by CHROMIUM"
sync_api = pytest.importorskip("playwright.sync_api", reason=f"needs {NEEDS}")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"needs {NEEDS}")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, address, request):
    """A page that fails the test on any outside request, script error or refused resource."""
    options = getattr(request, "param", {})
    context = browser.new_context(**{"viewport": {"width": 1100, "height": 850}, **options})
    page = context.new_page()
    outside, errors = [], []
    page.on("request", lambda r: outside.append(r.url) if not r.url.startswith(address) else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: errors.append(m.text) if "Security Policy" in m.text else None)
    page.goto(address)
    page.set_default_timeout(60_000)
    yield page
    assert [url for url in outside if not url.startswith("data:")] == []
    assert errors == []
    context.close()


def test_search(page):
    sync_api.expect(page.locator("#facts")).to_contain_text("10 texts")
    page.fill("#query", "monetary policy")
    page.press("#query", "Enter")
    first = page.locator("#results li").first
    sync_api.expect(first).to_contain_text("bank")
    assert page.locator("#results li").count() == 10
    shown = page.locator("#results .value").all_inner_texts()  # confidence: it is calibrated
    assert all(re.fullmatch(r"\d+ %", text) and int(text[:-2]) <= 100 for text in shown)
    assert "line" in first.inner_text()
    page.click("#more summary")
    page.fill("#k", "3")
    page.fill("#where", '{"line": {"$gte": 7}}')
    page.click("#search-form button")
    sync_api.expect(page.locator("#results li")).to_have_count(3)
    page.fill("#where", "{")
    page.click("#search-form button")
    sync_api.expect(page.locator("#search-note.bad")).to_contain_text("not JSON")
    page.fill("#where", "")
    page.fill("#threshold", "99")
    page.click("#search-form button")
    sync_api.expect(page.locator("#search-note")).to_contain_text("nothing among 10")


EVIL = "<script>document.title = 'taken'</script><img src=x>.md"
ROOF = "The roof leaks over the stairs. Two carpenters mend the roof in May. They bring ladders."
BREAD = "Bread is baked on Fridays. The oven is shared by all houses of the street."
ROWS = [
    ("house.md", ROOF, {"headings": ["Repairs", "Roof"], "page": 2, "kind": "plan", "year": 2024}),
    (
        "house.md",
        "The roof is of slate. It was laid by a carpenter.",
        {"kind": "plan", "year": 2024},
    ),
    (EVIL, BREAD + " Nobody mends it.", {"headings": [EVIL], "kind": "note", "year": 2023}),
    (
        "far.md",
        "😀 The roof of the church shines. " + "A long walk. " * 60,
        {"kind": "note", "year": 2024},
    ),
    (
        "https://example.org/a?b=c",
        BREAD,
        {"kind": "link", "tags": ["x", EVIL], "at": {"a": {"b": 1}}},
    ),
]


@pytest.fixture(scope="module")
def passages(app_of, encoder):
    """A server whose index has passages of documents, as a folder gives them."""
    from contrasent.search.index import Index

    texts = [f"{name}\n{text}" for name, text, _ in ROWS]
    facts = [{"document": n, "title": n, "body": len(n) + 1, **more} for n, _, more in ROWS]
    index = Index.build(encoder.encode, texts, metadata=facts, model=encoder.identity)
    with running(app_of(index=index)) as url:
        yield url


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_answers_of_documents(browser, passages, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(60_000)
    expect = sync_api.expect
    page.goto(passages)
    page.fill("#query", "who mends the roof?")
    page.press("#query", "Enter")
    entries = page.locator("#results > li")
    expect(entries).to_have_count(4)
    expect(page.locator("#search-note")).to_have_text(
        re.compile(r"^the best 4 among 5 texts, [\d,]+ ms$")
    )
    first = entries.first
    expect(first.locator("> div > .text")).to_have_text("Two carpenters mend the roof in May.")
    assert first.locator("> div > .text mark").all_inner_texts() == ["mend", "roof"]
    expect(first.locator("> div > .place")).to_have_text("house.md › Repairs › Roof · page 2")
    assert first.locator("> div > .labels .label").all_inner_texts() == ["kind plan", "year 2024"]
    expect(first.locator(".other")).to_be_hidden()
    first.locator("summary", has_text="1 more passage").click()
    expect(first.locator(".other .text")).to_contain_text("The roof is of slate.")
    # Offsets are of characters, also behind one that is two units of UTF-16.
    far = entries.filter(has_text="church")
    assert far.locator("> div > .text mark").first.inner_text() == "roof"
    link = page.locator("#results a.name")
    assert link.get_attribute("href") == "https://example.org/a?b=c"
    assert page.locator("#results", has_text="{").count() == 0
    expect(entries.filter(has_text="Nobody mends it").locator("> div > .place .name")).to_have_text(
        EVIL
    )
    assert page.title() == "contrasent"
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_a_filter_is_clicked_together(browser, passages):
    page = browser.new_page()
    page.set_default_timeout(60_000)
    page.goto(passages)
    expect, entries = sync_api.expect, page.locator("#results > li")
    menus = page.locator("#facets select")
    expect(menus).to_have_count(3)
    assert [text.split("\n")[0] for text in page.locator("#facets label").all_inner_texts()] == [
        "document",
        "kind",
        "year",
    ]
    page.fill("#query", "who mends the roof?")
    page.press("#query", "Enter")
    expect(entries).to_have_count(4)
    menus.nth(1).select_option("note")  # searches at once
    expect(entries).to_have_count(2)
    menus.nth(2).select_option("2024")
    expect(entries).to_have_count(1)
    expect(entries.first).to_contain_text("church")
    menus.nth(1).select_option("any")
    menus.nth(2).select_option("any")
    expect(entries).to_have_count(4)
    page.locator(".label", has_text="kind link").click()
    expect(entries).to_have_count(1)
    assert menus.nth(1).input_value() != ""
    page.click("#more summary")
    page.fill("#where", '{"at.a.b": {"$gt": 1}}')  # and with what was clicked
    page.click("#search-form button")
    expect(page.locator("#search-note")).to_have_text("nothing among 5 texts")
    page.close()


def test_compare(page, address):
    page.click("#tab-compare")
    page.fill("#one", LINES[2])
    page.fill("#two", LINES[3])
    page.click("#compare-form button")
    sync_api.expect(page.locator("#gauge")).to_be_visible()
    body = {"a": LINES[2], "b": LINES[3]}
    wanted = post_to(f"{address}/similarity", json=body).json()["scores"][0][0]
    sync_api.expect(page.locator("#score")).to_have_text(f"{wanted:.4f}")


def test_heat_map(page):
    page.click("#tab-heat")
    page.fill("#lines", "\n".join(LINES))
    page.click("#heat-form button")
    sync_api.expect(page.locator("#heat-table tbody tr")).to_have_count(10)
    cells = page.locator("#heat-table tbody tr").nth(2).locator("td").all_inner_texts()
    assert cells[2] == "1.00"
    assert float(cells[3]) > float(cells[0])
    page.fill("#lines", "one line")
    page.click("#heat-form button")
    sync_api.expect(page.locator("#heat-note.bad")).to_contain_text("at least two")


def test_file(page, tmp_path):
    page.click("#tab-file")
    (tmp_path / "mine.txt").write_text("\n".join([*LINES, "", "A café on the square — très bon."]))
    page.set_input_files("#upload", str(tmp_path / "mine.txt"))
    sync_api.expect(page.locator("#file-note")).to_contain_text("11 texts, ready")
    page.fill("#file-query", "where can I drink coffee?")
    page.press("#file-query", "Enter")
    sync_api.expect(page.locator("#file-results li").first).to_contain_text("café")
    (tmp_path / "t.csv").write_text('id,text\n1,"one, ""two"""\n2,"three\nfour"\n')
    page.set_input_files("#upload", str(tmp_path / "t.csv"))
    sync_api.expect(page.locator("#file-note")).to_contain_text("2 texts, ready")
    page.fill("#file-query", "one two")
    page.press("#file-query", "Enter")
    sync_api.expect(page.locator("#file-results li").first).to_contain_text('one, "two"')
    rows = [json.dumps({"text": line}) for line in LINES[:3]]
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    page.set_input_files("#upload", str(tmp_path / "t.jsonl"))
    sync_api.expect(page.locator("#file-note")).to_contain_text("3 texts, ready")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    page.set_input_files("#upload", str(tmp_path / "bad.txt"))
    sync_api.expect(page.locator("#file-note.bad")).to_contain_text("not UTF-8")


def test_drop_a_file(page):
    data = page.evaluate_handle(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["dropped one\\ndropped two"], "d.txt"));
          return data;
        }"""
    )
    page.dispatch_event("body", "drop", {"dataTransfer": data})
    sync_api.expect(page.locator("#file-note")).to_contain_text("2 texts, ready")
    assert page.locator("#file").is_visible()


def test_keyboard_alone(page):
    page.keyboard.press("/")
    page.keyboard.type("a pet")
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#results li").first).to_contain_text("dog")
    page.locator("#tab-search").focus()
    order = []
    for _ in range(4):
        page.keyboard.press("ArrowRight")
        order.append(page.evaluate("document.activeElement.id"))
    assert order == ["tab-compare", "tab-heat", "tab-file", "tab-search"]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "one"


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}], indirect=True)
def test_dark_and_light(page):
    def ground():
        return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")

    assert ground() == "rgb(17, 20, 28)"
    page.click("#tab-heat")
    page.click("#heat-form button")
    sync_api.expect(page.locator("#heat-table")).to_be_visible()
    page.click("#theme")
    assert ground() == "rgb(245, 246, 250)"


PHONE = {"viewport": {"width": 375, "height": 740}, "is_mobile": True, "has_touch": True}


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_phone(page):
    page.fill("#query", "a train by the sea")
    page.tap("#search-form button")
    sync_api.expect(page.locator("#results li").first).to_be_visible()
    for name in ("compare", "heat", "file", "search"):
        page.tap(f"#tab-{name}")
        if name == "heat":
            page.tap("#heat-form button")
            sync_api.expect(page.locator("#heat-table")).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 375, f"{name} is {wide} wide"


def test_texts_are_never_html(browser, app_of, encoder):
    """A text that would be a script in HTML is shown as it is."""
    import numpy as np

    from contrasent.search.index import Index

    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    index = Index.build(
        lambda texts: np.ones((len(texts), 384), np.float32), [evil, "b"], ids=[evil, "b"],
        metadata=[{evil: evil}, None], model=encoder.identity,
    )  # fmt: skip
    with running(app_of(index=index)) as url:
        page = browser.new_page()
        said = []
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        page.fill("#query", "x")
        page.press("#query", "Enter")
        sync_api.expect(page.locator("#results li").first).to_contain_text("<img src=x")
        assert said == []
        assert page.locator("img, main script").count() == 0
        page.close()


def test_key(browser, app_of, index):
    from contrasent.serve.guard import ServerSettings

    app = app_of(index=index, settings=ServerSettings(api_key="secret"))
    with running(app) as url:
        page = browser.new_page()
        page.goto(url)
        sync_api.expect(page.locator("#key-form")).to_be_visible()
        page.fill("#query", "a pet")
        page.press("#query", "Enter")
        sync_api.expect(page.locator("#search-note.bad")).to_contain_text("key is required")
        page.fill("#key", "secret")
        page.press("#key", "Enter")
        page.press("#query", "Enter")
        sync_api.expect(page.locator("#results li").first).to_contain_text("dog")
        page.close()


def test_docs(page, address):
    page.goto(f"{address}/docs")
    sync_api.expect(page.locator("details")).to_have_count(8)
    page.locator("summary", has_text="POST /search").click()
    command = page.locator("details[open] pre").first.inner_text()
    assert re.search(r"curl http://127.0.0.1:\d+/search", command)
