// The map and the table of shards.

import { address, age, ask, bytes, count, go, h, heading, many, show } from "./parts.js";

export async function shardsPage(words, current) {
  const { shards } = await ask("api/shards");
  if (!current()) return;
  const by = words.get("by") || "order";
  const order = shards.map((shard, place) => ({ ...shard, place }));
  const value = {
    order: (one) => -one.place,
    name: (one) => one.name,
    bytes: (one) => one.bytes || 0,
    samples: (one) => one.samples || 0,
    age: (one) => -(one.modified || 0),
    problems: (one) => one.problems,
  }[by];
  order.sort((one, other) =>
    value(one) < value(other) ? 1 : value(one) > value(other) ? -1 : one.place - other.place,
  );
  const most = Math.max(1, ...shards.map((one) => one.bytes || 0)),
    mostSamples = Math.max(1, ...shards.map((one) => one.samples || 0));
  const total = shards.reduce((sum, one) => sum + (one.bytes || 0), 0);
  const tiles = shards.slice(0, 2000).map((one, place) =>
    h("button", {
      type: "button",
      class: one.error ? "bad" : "",
      title: `${one.name}: ${one.samples === undefined ? "?" : count(one.samples)} samples, ${one.bytes === undefined ? "?" : bytes(one.bytes)}${one.error ? `; ${one.error}` : ""}`,
      "aria-label": one.name,
      style: {
        width: `${Math.max(10, 120 * Math.sqrt((one.bytes || 0) / most))}px`,
        opacity: String(0.3 + (0.7 * (one.samples || 0)) / mostSamples),
      },
      on: { click: () => one.first !== undefined && go("samples", { start: one.first || "" }) },
    }),
  );
  const head = (key, text, number) =>
    h(
      "th",
      { class: number ? "n" : "", "aria-sort": by === key ? "descending" : "none" },
      h(
        "button",
        { type: "button", on: { click: () => go("shards", { by: key }) } },
        `${text}${by === key ? " ↓" : ""}`,
      ),
    );
  show(
    heading(
      many(shards.length, "shard"),
      `${total ? bytes(total) : ""}; wider is larger, darker has more samples; click one to see its samples`,
    ),
    h("div", { class: "map", role: "group", "aria-label": "map of shards" }, tiles),
    h(
      "div",
      { class: "card" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            head("order", "#", true),
            head("name", "shard"),
            head("samples", "samples", true),
            head("bytes", "size", true),
            head("age", "age"),
            head("problems", "problems", true),
          ),
        ),
        h(
          "tbody",
          {},
          order
            .slice(0, 1000)
            .map((one) =>
              h(
                "tr",
                { class: one.error ? "bad" : "" },
                h("td", { class: "n soft" }, count(one.place)),
                h(
                  "td",
                  {},
                  one.first !== undefined
                    ? h("a", { href: `#/${address("samples", { start: one.first || "" })}` }, one.name)
                    : one.name,
                  h("div", { class: "soft" }, one.error || (one.url !== one.name ? one.url : "")),
                ),
                h("td", { class: "n" }, one.samples === undefined ? "" : count(one.samples)),
                h(
                  "td",
                  { class: "n" },
                  one.bytes === undefined ? "" : bytes(one.bytes),
                  h("i", { class: "meter", style: { width: `${(100 * (one.bytes || 0)) / most}%` } }),
                ),
                h("td", {}, one.modified ? age(one.modified) : ""),
                h("td", { class: "n" }, one.problems || ""),
              ),
            ),
        ),
      ),
    ),
  );
}
