"use strict";
// The page of a contrasent server: no outside request, no storage, no HTML made of texts.

const $ = (id) => document.getElementById(id);
let key = "";

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

async function ask(path, body) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const options = body === undefined ? { headers } : {
    method: "POST", headers: { ...headers, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("the server is not responding");
  }
  const data = await answer.json().catch(() => ({}));
  if (answer.status === 401) $("key-form").hidden = false;
  if (!answer.ok) throw new Error(data.error ? data.error.message : `status ${answer.status}`);
  return data;
}

function say(id, text, bad = false) {
  $(id).textContent = text;
  $(id).classList.toggle("bad", bad);
}

// Run the work of a form; its button rests meanwhile, and what goes wrong is said.
function onSubmit(form, note, work) {
  $(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = $(form).querySelector("button[type=submit]");
    button.disabled = true;
    say(note, "…");
    try {
      await work();
    } catch (error) {
      say(note, error.message, true);
    } finally {
      button.disabled = false;
    }
  });
}

// ------------------------------------------------------------------ state of the server, theme

let state = {};

async function health() {
  try {
    state = await ask("health");
    const texts = state.texts === null ? "no index" : `${state.texts.toLocaleString()} texts`;
    $("facts").textContent = `${state.model} · ${state.dimension} dimensions · ${texts}`;
    $("key-form").hidden = !state.key_needed || key !== "";
    if (state.texts === null) {
      say("search-note", "This server has no index: only Compare, Heat map and File work.");
    }
    await loadFacets();
  } catch (error) {
    $("facts").textContent = error.message;
  }
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
function theme(name) { document.documentElement.dataset.theme = name; }
theme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
$("theme").addEventListener("click", () => {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  if (!$("heat-table").hidden) paintHeat();
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  $("key-form").hidden = true;
  health();
});

// ------------------------------------------------------------------ tabs

const tabs = [...document.querySelectorAll("[role=tab]")];
function open(tab, focus = true) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    $(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
}
tabs.forEach((tab, at) => {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) open(tabs[(at + step + tabs.length) % tabs.length]);
    else if (event.key === "Home") open(tabs[0]);
    else if (event.key === "End") open(tabs[tabs.length - 1]);
  });
});
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !typing) {
    event.preventDefault();
    open(tabs[0], false);
    $("query").focus();
  }
});

// ------------------------------------------------------------------ search

const FIRST_MENUS = 4; // menus that are shown before "More options" is opened
const LONGEST = 300; // characters of a text that has no answer
const PLACES = ["document", "title", "headings", "body", "page", "sections"]; // shown as where a text stands
const ALONE = /^([^\n]{0,58}[^.!?:;,\s])\n(?=[^\n])(?![a-zß-ÿ])/gm; // a heading, a cell or an item
const CONTROL = /[\x00-\x1f\x7f-\x9f]/g;
let facets = [];

// A text's answer with the words of the query marked. Offsets count characters, not UTF-16 units.
function answerOf(hit) {
  const made = element("p", "text");
  if (!hit.answer) {
    made.textContent = hit.text.length > LONGEST ? `${hit.text.slice(0, LONGEST)} …` : hit.text;
    return made;
  }
  const letters = [...hit.text.replace(ALONE, "$1\u2028")];
  const part = (from, to) => letters.slice(from, to).join("").replace(/\u2028/g, " – ").replace(CONTROL, " ");
  const { start, end, marks, cut } = hit.answer;
  if (cut[0]) made.append("… ");
  let at = start;
  for (const [from, to] of marks) {
    made.append(part(at, from), element("mark", "", part(from, to)));
    at = to;
  }
  made.append(part(at, end), cut[1] ? " …" : "");
  return made;
}

function factsOf(hit) {
  const data = hit.metadata;
  return data !== null && typeof data === "object" && !Array.isArray(data) ? data : {};
}

// File, headings and page of an answer or its passage, or else the row's id; a link where there is an address.
function placeOf(hit) {
  const facts = factsOf(hit);
  const made = element("p", "place");
  const name = typeof facts.document === "string" ? facts.document : hit.id;
  const address = [facts.url, facts.document].find((one) => /^https?:\/\//.test(one));
  const shown = element(address ? "a" : "span", "name", name);
  if (address) Object.assign(shown, { href: address, target: "_blank", rel: "noopener noreferrer" });
  made.append(shown);
  const { headings, page } = hit.answer || facts;
  for (const heading of Array.isArray(headings) ? headings : []) made.append(` › ${heading}`);
  if (page) made.append(` · page ${page}`);
  return made;
}

// The other metadata as labels; one that can be filtered by does so when it is clicked.
function labelsOf(hit) {
  const made = element("div", "labels");
  const add = (name, value) => {
    if (Array.isArray(value) && value.every((one) => typeof one !== "object")) value = value.join(", ");
    if (value !== null && typeof value === "object") {
      for (const [inner, one] of Object.entries(value)) add(`${name}.${inner}`, one);
      return;
    }
    const facet = facets.find((one) => one.field === name && one.values.includes(value));
    const label = element(facet ? "button" : "span", "label", `${name} `);
    label.append(element("b", "", value === null ? "none" : String(value).slice(0, 80)));
    if (facet) {
      label.type = "button";
      label.title = `Only texts with ${name} ${value}`;
      label.addEventListener("click", () => { facet.select.value = facet.values.indexOf(value); again(); });
    }
    made.append(label);
  };
  const facts = factsOf(hit);
  const passage = typeof facts.document === "string";
  for (const [name, value] of Object.entries(facts)) {
    if (!passage || !PLACES.includes(name)) add(name, value);
  }
  if (hit.metadata !== factsOf(hit) && ![null, undefined].includes(hit.metadata)) add("", hit.metadata);
  return made;
}

function folded(title, ...content) {
  const made = element("details", "whole");
  made.append(element("summary", "", title), ...content);
  return made;
}

// A hit, with others of its document below it.
function entry(hits, best) {
  const [hit, ...others] = hits;
  const item = element("li");
  const left = element("div", "left");
  const calibrated = typeof hit.confidence === "number";
  const unencoded = !calibrated && hit.cosine === 0 && hit.bm25 > 0; // its vector is still missing
  const found = unencoded ? `BM25 ${hit.bm25.toFixed(1)}` : (hit.cosine ?? hit.score).toFixed(2);
  const value = element("span", "value", calibrated ? `${Math.round(hit.confidence)} %` : found);
  value.title = calibrated ? "the probability that this answers" : unencoded ? "BM25 score" : "cosine";
  left.append(value);
  const bar = element("div", "bar");
  const fill = element("i");
  const width = calibrated ? hit.confidence : hit.score / best * 100;
  fill.style.width = `${Math.max(0, Math.min(100, width))}%`;
  bar.append(fill);
  left.append(bar);
  const right = element("div");
  right.append(answerOf(hit), placeOf(hit));
  const labels = labelsOf(hit);
  if (labels.children.length) right.append(labels);
  const shown = hit.answer ? hit.answer.end - hit.answer.start : LONGEST;
  if ([...hit.text].length > shown + 2) right.append(folded("whole passage", element("p", "text", hit.text)));
  if (others.length) {
    const title = `${others.length} more passage${others.length > 1 ? "s" : ""}`;
    const more = others.map((one) => {
      const made = element("div", "other");
      made.append(answerOf(one), placeOf(one));
      return made;
    });
    right.append(folded(title, ...more));
  }
  item.append(left, right);
  return item;
}

function list(target, hits, together = false) {
  const best = Math.max(1e-9, ...hits.map((hit) => hit.score));
  const groups = new Map();
  hits.forEach((hit, at) => {
    const name = together && typeof factsOf(hit).document === "string" ? factsOf(hit).document : at;
    groups.set(name, [...(groups.get(name) || []), hit]);
  });
  // Of a document prose is shown before tasks and a table of contents.
  const listed = (hit) => Number(Boolean(hit.answer && hit.answer.listed));
  const items = [...groups.values()].map((some) => entry(some.sort((a, b) => listed(a) - listed(b)), best));
  $(target).replaceChildren(...items);
}

// What the texts can be filtered by, as menus.
async function loadFacets() {
  if (state.texts === null || (state.key_needed && !key)) return;
  const found = Object.entries((await ask("facets")).facets);
  facets = found.map(([field, values]) => {
    const select = element("select");
    select.append(element("option", "", "any"));
    select.firstChild.value = "";
    values.forEach((value, at) => {
      const option = element("option", "", String(value));
      option.value = at;
      select.append(option);
    });
    select.addEventListener("change", again);
    return { field, values, select };
  });
  const menus = facets.map(({ field, select }) => {
    const made = element("label", "facet", field);
    made.append(select);
    return made;
  });
  $("facets").replaceChildren(...menus.slice(0, FIRST_MENUS));
  $("more-facets").replaceChildren(...menus.slice(FIRST_MENUS));
  $("facets").hidden = !facets.length;
}

function again() {
  for (const { select } of facets) select.classList.toggle("on", select.value !== "");
  if ($("query").value.trim()) $("search-form").requestSubmit();
}

function filter() {
  const parts = facets.filter(({ select }) => select.value !== "")
    .map(({ field, values, select }) => ({ [field]: { $eq: values[Number(select.value)] } }));
  if ($("where").value.trim()) {
    try {
      parts.push(JSON.parse($("where").value));
    } catch {
      throw new Error('the filter is not JSON; an example: {"year": {"$gte": 2000}}');
    }
  }
  return parts.length > 1 ? { $and: parts } : parts[0];
}

async function search(text, exact = false) {
  const body = { query: text, k: Math.max(1, Number($("k").value) || 10), exact };
  if ($("threshold").value !== "") body.threshold = Number($("threshold").value);
  const where = filter();
  if (where !== undefined) body.where = where;
  const began = performance.now();
  const data = await ask("search", { ...body, answers: true, documents: true });
  const { hits, searched, no_match: noMatch } = data.results[0];
  list("results", hits, true);
  const other = element("button", "label", `search for ${text} instead`);
  other.type = "button";
  other.addEventListener("click", () => search(text, true).catch((error) => say("search-note", error.message, true)));
  $("searched").replaceChildren(`showing results for ${searched}; `, other);
  $("searched").hidden = searched === text;
  const shown = $("results").children.length;
  const time = Math.round(performance.now() - began).toLocaleString();
  const well = noMatch ? "no good match; " : "";
  const words = data.bm25_only && `${data.bm25_only}; `;
  say("search-note", hits.length
    ? `${words}${well}the best ${shown} among ${data.texts.toLocaleString()} texts, ${time} ms`
    : `${words}nothing among ${data.texts.toLocaleString()} texts`);
}
onSubmit("search-form", "search-note", async () => {
  if (!$("query").value.trim()) throw new Error("type what you are looking for");
  await search($("query").value);
});

// ------------------------------------------------------------------ compare

onSubmit("compare-form", "compare-note", async () => {
  const data = await ask("similarity", { a: $("one").value, b: $("two").value });
  const score = data.scores[0][0];
  $("gauge").hidden = false;
  $("score").textContent = score.toFixed(4);
  $("needle").style.left = `${(score + 1) * 50}%`;
  say("compare-note", data.truncated ? "a text was longer than the model reads and was truncated" : "");
});

// ------------------------------------------------------------------ heat map

let heat = null;
onSubmit("heat-form", "heat-note", async () => {
  const lines = $("lines").value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (lines.length < 2) throw new Error("paste at least two lines");
  if (lines.length > 60) throw new Error(`${lines.length} lines; the limit is 60`);
  const data = await ask("similarity", { a: lines });
  heat = { lines, scores: data.scores };
  paintHeat();
  say("heat-note", `${lines.length} × ${lines.length} cosines`);
});

function colors(...names) {
  const style = getComputedStyle(document.documentElement);
  return names.map((name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    const wide = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
    return [0, 2, 4].map((at) => parseInt(wide.slice(at, at + 2), 16));
  });
}

function paintHeat() {
  const [low, zero, high] = colors("--warm", "--card", "--accent");
  const table = $("heat-table");
  const head = element("tr");
  head.append(element("td"));
  heat.lines.forEach((line, at) => {
    const cell = element("th", "", String(at + 1));
    cell.title = line;
    head.append(cell);
  });
  const rows = heat.lines.map((line, row) => {
    const made = element("tr");
    const name = element("th", "", `${row + 1}  ${line}`);
    name.title = line;
    made.append(name);
    heat.scores[row].forEach((score, column) => {
      const cell = element("td", "", score.toFixed(2).replace("-0.00", "0.00"));
      const end = score < 0 ? low : high;
      const part = Math.min(1, Math.abs(score));
      const color = zero.map((from, at) => Math.round(from + (end[at] - from) * part));
      const light = (0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]) > 140;
      cell.style.background = `rgb(${color.join(" ")})`;
      cell.style.color = light ? "#10131c" : "#fff";
      cell.title = `${line}\n${heat.lines[column]}\n${score.toFixed(4)}`;
      made.append(cell);
    });
    return made;
  });
  const top = element("thead");
  top.append(head);
  const body = element("tbody");
  body.append(...rows);
  table.replaceChildren(top, body);
  table.hidden = false;
}

// ------------------------------------------------------------------ a file, kept in this tab

const MOST = 5000;
let kept = null;

function cells(text, comma) {
  const rows = [];
  let row = [], cell = "", quoted = false;
  for (let at = 0; at < text.length; at++) {
    const c = text[at];
    if (quoted) {
      if (c === '"' && text[at + 1] === '"') { cell += '"'; at++; }
      else if (c === '"') quoted = false;
      else cell += c;
    } else if (c === '"' && comma === "," && cell === "") quoted = true;
    else if (c === comma) { row.push(cell); cell = ""; }
    else if (c === "\n" || c === "\r") {
      if (c === "\r" && text[at + 1] === "\n") at++;
      row.push(cell); rows.push(row); row = []; cell = "";
    } else cell += c;
  }
  if (cell !== "" || row.length) { row.push(cell); rows.push(row); }
  return rows.filter((one) => one.some((value) => value.trim()));
}

function textsOf(name, content) {
  const lower = name.toLowerCase();
  if (lower.endsWith(".jsonl")) {
    return content.split("\n").filter((line) => line.trim()).map((line, at) => {
      let value;
      try { value = JSON.parse(line); } catch { throw new Error(`line ${at + 1} is not JSON`); }
      if (typeof value === "string") return value;
      const found = value && (value.text ?? value.sentence
        ?? Object.values(value).find((one) => typeof one === "string"));
      if (typeof found !== "string") throw new Error(`line ${at + 1} contains no text`);
      return found;
    });
  }
  if (lower.endsWith(".csv") || lower.endsWith(".tsv")) {
    const rows = cells(content, lower.endsWith(".csv") ? "," : "\t");
    if (!rows.length) return [];
    const names = rows[0].map((value) => value.trim().toLowerCase());
    const named = names.findIndex((value) => value === "text" || value === "sentence");
    const length = (at) => rows.reduce((sum, row) => sum + (row[at] || "").length, 0);
    const longest = rows[0].map((_, at) => at).reduce((best, at) => length(at) > length(best) ? at : best, 0);
    const column = named >= 0 ? named : longest;
    return rows.slice(named >= 0 ? 1 : 0).map((row) => row[column] || "");
  }
  return content.split(/\r\n|\n|\r/);
}

function floats(coded) {
  const bytes = Uint8Array.from(atob(coded), (c) => c.charCodeAt(0));
  const values = new Float32Array(bytes.buffer);
  let square = 0;
  for (const value of values) square += value * value;
  const norm = Math.sqrt(square) || 1;
  return values.map((value) => value / norm);
}

async function embed(texts) {
  const data = await ask("v1/embeddings", { input: texts, encoding_format: "base64" });
  return data.data.map((item) => floats(item.embedding));
}

async function read(file) {
  kept = null;
  $("file-form").hidden = true;
  $("file-results").replaceChildren();
  try {
    if (file.size > 20e6) throw new Error("the file is larger than 20 MB");
    const content = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    const texts = textsOf(file.name, content).map((text) => text.trim()).filter(Boolean);
    if (!texts.length) throw new Error("the file contains no text");
    if (texts.length > MOST) throw new Error(`${texts.length.toLocaleString()} texts; the limit is 5,000`);
    $("progress").hidden = false;
    const vectors = [];
    for (let at = 0; at < texts.length; at += 64) {
      vectors.push(...await embed(texts.slice(at, at + 64)));
      $("progress").value = vectors.length / texts.length;
      say("file-note", `${vectors.length.toLocaleString()} of ${texts.length.toLocaleString()} texts`);
    }
    kept = { texts, vectors };
    say("file-note", `${file.name}: ${texts.length.toLocaleString()} texts, ready to search`);
    $("file-form").hidden = false;
    $("file-query").focus();
  } catch (error) {
    const words = error instanceof TypeError ? "the file is not UTF-8 text" : error.message;
    say("file-note", words, true);
  } finally {
    $("progress").hidden = true;
  }
}
$("upload").addEventListener("change", () => { if ($("upload").files[0]) read($("upload").files[0]); });
for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return; // text goes where it is dropped
    event.preventDefault();
    $("drop").classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files[0]) {
      open($("tab-file"), false);
      read(event.dataTransfer.files[0]);
    }
  });
}
onSubmit("file-form", "file-note", async () => {
  const [query] = await embed([$("file-query").value]);
  const scored = kept.vectors.map((vector, at) => {
    let score = 0;
    for (let d = 0; d < query.length; d++) score += query[d] * vector[d];
    return { id: `line ${at + 1}`, text: kept.texts[at], score, metadata: null };
  });
  scored.sort((one, two) => two.score - one.score);
  list("file-results", scored.slice(0, 10));
  say("file-note", `the best 10 of ${kept.texts.length.toLocaleString()} texts`);
});

health();
