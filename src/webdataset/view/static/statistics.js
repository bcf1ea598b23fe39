// Histograms; a bar leads to its samples.

import {
  ask,
  bytes,
  count,
  empty,
  fieldWord,
  go,
  h,
  heading,
  later,
  many,
  named,
  progress,
  say,
  short,
  show,
} from "./parts.js";

export async function statisticsPage(_, current) {
  const found = await ask("api/statistics", { start: 1 });
  if (!current()) return;
  if (found.state === "failed") return show(empty("No statistics", found.error));
  if (!found.result) {
    show(
      progress(
        found.done,
        found.total,
        `looking at samples all over the dataset: ${count(found.done)} of ${count(found.total)}`,
      ),
    );
    return later(300, () => current() && statisticsPage(_, current).catch((error) => say(error.message)));
  }
  const result = found.result;
  show(
    heading(
      "Statistics",
      `of ${many(result.samples, "sample")} spread over ${count(result.of)}; click a bar to see its samples`,
    ),
    h(
      "div",
      { class: "chips" },
      result.sets.map((set) =>
        h("span", { class: "chip" }, `${set.fields.join(" ") || "no fields"}: ${count(set.samples)}`),
      ),
    ),
    h(
      "div",
      { class: "columns" },
      result.fields.map((field) => statisticsCard(field, result.samples)),
    ),
  );
}

function statisticsCard(field, samples) {
  const facts = [
    Object.entries(field.modes || field.dtypes || field.types || {})
      .map(([kind, n]) => (n === field.samples ? kind : `${kind} (${count(n)})`))
      .slice(0, 3)
      .join(", "),
    field.shape_range && field.shape_range.join("; "),
    field.range && `${short(field.range[0])} to ${short(field.range[1])}`,
    field.bytes && `${bytes(field.bytes.total)} in all`,
  ];
  if (field.samples < samples) facts.unshift(`in ${count(field.samples)} of ${count(samples)}`);
  const errors = Object.entries(field.errors || {})
    .slice(0, 3)
    .map(([text, n]) => h("p", { class: "problem" }, `${count(n)} × ${text}`));
  return h(
    "section",
    { class: "card" },
    h("h2", {}, field.name),
    h("div", { class: "soft" }, facts.filter(Boolean).join(" · ")),
    errors,
    field.histograms.filter((one) => one.bars.length > 1).map((one) => histogram(field, one)),
  );
}

function histogram(field, { of, bars, others }) {
  const most = Math.max(...bars.map((bar) => bar.count));
  const look = (bar) => go("samples", { q: conditionOf(field, of, bar, bar === bars[bars.length - 1]) });
  if (of === "values" && bars[0].label !== undefined)
    return h(
      "div",
      {},
      h("h3", {}, "values"),
      h(
        "div",
        { class: "classes" },
        bars.map((bar) =>
          h(
            "button",
            { type: "button", title: "show these samples", on: { click: () => look(bar) } },
            h("span", {}, bar.label),
            h("i", { style: { width: `${(100 * bar.count) / most}%` } }),
            h("span", {}, count(bar.count)),
          ),
        ),
      ),
      others > 0 && h("div", { class: "soft" }, `and ${many(others, "other")}`),
    );
  const unit = of === "bytes" ? bytes : short;
  const text = (bar) => `${unit(bar.from)}${bar.to > bar.from ? ` to ${unit(bar.to)}` : ""}: ${count(bar.count)}`;
  const possible = of !== "mean of values";
  return h(
    "div",
    {},
    h("h3", {}, of),
    h(
      "div",
      { class: "bars", role: "group", "aria-label": `histogram of ${of}` },
      bars.map((bar) =>
        h(
          "button",
          {
            type: "button",
            title: text(bar),
            "aria-label": text(bar),
            disabled: !possible,
            on: { click: () => look(bar) },
          },
          h("i", { style: { height: `${Math.max(bar.count ? 3 : 0, (100 * bar.count) / most)}%` } }),
        ),
      ),
    ),
    h("div", { class: "axis" }, h("span", {}, unit(bars[0].from)), h("span", {}, unit(bars[bars.length - 1].to))),
  );
}

function conditionOf(field, of, bar, last) {
  if (bar.label !== undefined)
    return `${named(field.name, field.kind)} == ${field.kind === "number" ? bar.value : JSON.stringify(bar.value)}`;
  const what = {
    values: named(field.name, field.kind),
    length: `len(${named(field.name)})`,
    bytes: `size(${fieldWord(field.name)})`,
    width: `width(${fieldWord(field.name)})`,
    height: `height(${fieldWord(field.name)})`,
  }[of];
  if (bar.from === bar.to) return `${what} == ${bar.from}`;
  return `${bar.from} <= ${what} ${last ? "<=" : "<"} ${bar.to}`;
}
