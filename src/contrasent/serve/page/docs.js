"use strict";
// The routes of the server, read from its own OpenAPI description.

document.documentElement.dataset.theme =
  window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

const EXAMPLES = {
  "/v1/embeddings": { input: ["a sentence", "another"] },
  "/similarity": { a: "a sentence", b: ["another", "a third"] },
  "/search": { query: "what to look for", k: 5 },
};

function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}

function block(words, text) {
  return [element("p", words), (() => {
    const box = element("pre");
    box.append(element("code", text));
    return box;
  })()];
}

// A schema in a few words: "text or list of text", "whole number, 1 to 1000".
function kind(schema, parts) {
  if (!schema) return "";
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    const fields = parts[name].properties;
    return `{${Object.entries(fields).map(([key, one]) => `${key}: ${kind(one, parts)}`).join("; ")}}`;
  }
  if (schema.anyOf) return [...new Set(schema.anyOf.map((one) => kind(one, parts)))].join(" or ");
  if (schema.enum || schema.const !== undefined) {
    return (schema.enum || [schema.const]).map((one) => JSON.stringify(one)).join(" or ");
  }
  const names = { string: "text", integer: "whole number", array: "list", null: "null" };
  let words = names[schema.type] || schema.type || "any JSON";
  if (schema.type === "array") words += ` of ${kind(schema.items, parts)}`;
  if (schema.minimum !== undefined) words += ` from ${schema.minimum}`;
  if (schema.maximum !== undefined) words += ` to ${schema.maximum}`;
  return words;
}

function fields(words, schema, parts) {
  const made = element("dl");
  const { properties, required = [] } = parts[schema.$ref.split("/").pop()];
  for (const [name, one] of Object.entries(properties)) {
    const rest = [kind(one, parts)];
    if (required.includes(name)) rest.push("needed");
    if (one.default !== undefined && one.default !== null) rest.push(`${JSON.stringify(one.default)} by default`);
    if (one.description) rest.push(one.description);
    made.append(element("dt", name), element("dd", rest.join(". ")));
  }
  return [element("p", words), made];
}

async function show() {
  const schema = await (await fetch("openapi.json")).json();
  document.getElementById("about").textContent = schema.info.description;
  const routes = [];
  for (const [path, methods] of Object.entries(schema.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const box = element("details");
      const head = element("summary");
      head.append(element("code", `${method.toUpperCase()} ${path}`), ` — ${operation.description}`);
      box.append(head);
      const where = new URL(path.slice(1), location.href).href;
      const sent = EXAMPLES[path];
      const curl = sent
        ? `curl ${where} -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(sent)}'`
        : `curl ${where}`;
      box.append(...block("Try it", curl));
      const body = operation.requestBody?.content["application/json"].schema;
      const parts = schema.components.schemas;
      if (body) box.append(...fields("It takes", body, parts));
      const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
      if (answer && answer.$ref) box.append(...fields("Response", answer, parts));
      const errors = Object.entries(operation.responses).filter(([status]) => status !== "200")
        .map(([status, one]) => `${status}  ${one.description}`).join("\n");
      if (errors) box.append(...block("Errors", errors));
      routes.push(box);
    }
  }
  document.getElementById("routes").append(...routes);
}
show();
