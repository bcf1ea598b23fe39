// Problems that the checks found, and where.

import { ask, count, empty, go, h, heading, later, main, many, progress, say, show } from "./parts.js";

export async function problemsPage(words, current, start) {
  const from = Number(words.get("from") || 0);
  const found = await ask("api/problems", { start: start ? 1 : "", from });
  if (!current()) return;
  const top = heading(
    "Problems",
    "broken images, incomplete samples, doubled keys, cut archives and more, as `wl lint` finds them",
  );
  if (found.state === "waiting")
    return show(
      top,
      empty(
        "Not checked yet",
        "A check reads every shard once and decodes every image.",
        h(
          "button",
          {
            class: "button main",
            type: "button",
            on: { click: () => problemsPage(words, current, true).catch((error) => say(error.message)) },
          },
          "check all shards",
        ),
      ),
    );
  const parts = [top];
  if (found.state === "running")
    parts.push(progress(found.done, found.total, `checked ${count(found.done)} of ${many(found.total, "shard")}`));
  if (found.error) parts.push(h("p", { class: "problem" }, found.error));
  if (found.state === "done" && !found.kinds.length)
    parts.push(empty("No problems", `in ${many(found.total, "shard")}`));
  if (found.kinds.length) {
    parts.push(
      h(
        "div",
        { class: "card" },
        h(
          "table",
          {},
          h(
            "tbody",
            {},
            found.kinds.map((kind) =>
              h(
                "tr",
                {},
                h("td", { class: "n" }, count(kind.count)),
                h("td", {}, h("b", {}, kind.problem)),
                h("td", {}, kind.about),
              ),
            ),
          ),
        ),
      ),
    );
    parts.push(
      h("h2", { style: { margin: "20px 0 8px" } }, "Where"),
      h(
        "div",
        { class: "card" },
        h(
          "table",
          {},
          h(
            "tbody",
            {},
            found.findings.map((one) =>
              h(
                "tr",
                {},
                h("td", {}, h("b", {}, one.problem)),
                h(
                  "td",
                  {},
                  one.number !== undefined
                    ? h("a", { href: `#/sample?n=${one.number}` }, one.key)
                    : one.key || one.member || "",
                ),
                h("td", {}, one.detail || one.about),
                h("td", { class: "soft" }, one.shard),
              ),
            ),
          ),
        ),
      ),
    );
    const to = (place) => go("problems", { from: place || "" });
    if (found.kept > 200)
      parts.push(
        h(
          "div",
          { class: "pager" },
          h(
            "button",
            { class: "button", type: "button", disabled: from <= 0, on: { click: () => to(Math.max(0, from - 200)) } },
            "← before",
          ),
          h(
            "span",
            { class: "soft" },
            `${count(from)} to ${count(Math.min(found.kept, from + 200))} of ${count(found.kept)}`,
          ),
          h(
            "button",
            {
              class: "button",
              type: "button",
              disabled: from + 200 >= found.kept,
              on: { click: () => to(from + 200) },
            },
            "after →",
          ),
        ),
      );
  }
  show(...parts);
  if (found.state === "running")
    later(600, () => current() && problemsPage(words, current).catch((error) => say(error.message)));
}
