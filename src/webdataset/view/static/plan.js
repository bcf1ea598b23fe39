// The plan of an exact epoch: who gets what, and when.

import { ask, bytes, count, go, h, heading, hue, main, show } from "./parts.js";

export async function planPage(words, current) {
  const names = { ranks: "4", workers: "2", batch: "16", seed: "0", epoch: "0", shuffle_bytes: "256MiB" };
  const labels = {
    ranks: "ranks",
    workers: "workers per rank",
    batch: "batch per rank",
    seed: "seed",
    epoch: "epoch",
    shuffle_bytes: "shuffle memory",
  };
  const values = Object.fromEntries(Object.entries(names).map(([name, value]) => [name, words.get(name) || value]));
  const form = h(
    "form",
    { class: "plan card" },
    Object.entries(labels).map(([name, label]) => {
      const input = h("input", { name, inputmode: name === "shuffle_bytes" ? "text" : "numeric", autocomplete: "off" });
      input.value = values[name];
      return h("label", {}, label, input);
    }),
    h("button", { class: "button main", type: "submit" }, "plan"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go("plan", Object.fromEntries(new FormData(form)));
  });
  const below = h("div", {}, h("p", { class: "soft" }, "planning ..."));
  show(
    heading(
      "Plan of an exact epoch",
      "who gets which sample, and when, with WebDataset(..., exact=True); one colour is one shard",
    ),
    form,
    below,
  );
  let found;
  try {
    found = await ask("api/plan", { ...values, first: words.get("first") || "" });
  } catch (error) {
    if (current()) below.replaceChildren(h("p", { class: "problem" }, error.message));
    return;
  }
  if (!current()) return;
  const facts = found.facts;
  const fact = (text, label) => h("div", { class: "fact" }, h("b", {}, text), h("span", {}, label));
  const range = (list, unit) => {
    const low = Math.min(...list),
      high = Math.max(...list);
    return unit(low) === unit(high) ? unit(low) : `${unit(low)} to ${unit(high)}`;
  };
  const head = found.rows.length ? found.rows[0].ranks.slice(0, 16) : [];
  const last = found.rows.length ? found.rows[found.rows.length - 1].step + 1 : 0;
  const turn = (first) => go("plan", { ...values, first: first || "" });
  below.replaceChildren(
    h(
      "div",
      { class: "facts-grid" },
      fact(count(facts.steps), "steps per rank"),
      fact(count(facts.samples), "samples"),
      fact(count(facts.repeated), "given twice"),
      fact(count(facts.dropped), "left out"),
      fact(range(facts.bytes_per_rank, bytes), "read per rank"),
      fact(bytes(facts.memory_per_rank), "memory per rank"),
      fact(facts.distance.toFixed(2), "of a perfect shuffle, by distance"),
      fact(facts.same_shard.toFixed(2), "of a perfect shuffle, by shards"),
    ),
    h(
      "div",
      { class: "card schedule" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { class: "n" }, "step"),
            h("th", { class: "n" }, "worker"),
            head.map((one) => h("th", {}, `rank ${one.rank}`)),
          ),
        ),
        h(
          "tbody",
          {},
          found.rows.map((row) =>
            h(
              "tr",
              {},
              h("td", { class: "n soft" }, count(row.step)),
              h("td", { class: "n soft" }, row.ranks[0].worker),
              row.ranks.slice(0, 16).map((one) =>
                h(
                  "td",
                  {},
                  h(
                    "div",
                    { class: "dots" },
                    one.samples.slice(0, 256).map(([number, shard, again]) =>
                      h("a", {
                        href: `#/sample?n=${number}`,
                        class: again ? "again" : "",
                        title: `sample ${count(number)} of shard ${shard}${again ? ", once more" : ""}`,
                        "aria-label": `sample ${number}`,
                        style: { background: hue(shard) },
                      }),
                    ),
                  ),
                ),
              ),
            ),
          ),
        ),
      ),
      h(
        "div",
        { class: "pager" },
        h(
          "button",
          {
            class: "button",
            type: "button",
            disabled: found.first <= 0,
            on: { click: () => turn(Math.max(0, found.first - found.rows.length)) },
          },
          "← before",
        ),
        h("span", { class: "soft" }, `steps ${count(found.first)} to ${count(last - 1)} of ${count(facts.steps)}`),
        h(
          "button",
          { class: "button", type: "button", disabled: last >= facts.steps, on: { click: () => turn(last) } },
          "after →",
        ),
      ),
    ),
  );
}
