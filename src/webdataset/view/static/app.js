// The page of `wl view`: views by address, and keys.

import { address, ask, count, go, h, main, many, remember, remembered, say, state, where } from "./parts.js";
import { livePage } from "./live.js";
import { planPage } from "./plan.js";
import { problemsPage } from "./problems.js";
import { samplePage, back } from "./sample.js";
import { shardsPage } from "./shards.js";
import { statisticsPage } from "./statistics.js";
import { wall, setTile } from "./wall.js";

const TABS = [
  ["samples", "Samples"],
  ["statistics", "Statistics"],
  ["shards", "Shards"],
  ["problems", "Problems"],
  ["plan", "Plan"],
  ["live", "Live"],
];

// -- where we are: everything is in the address, so that going back works ----------------------------------------

async function route() {
  state.timers.splice(0).forEach(clearTimeout);
  const view = ++state.view;
  const { path, words } = where();
  say("");
  for (const tab of document.querySelectorAll("#tabs a"))
    if (tab.dataset.path === (path === "sample" ? "samples" : path)) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  const draw =
    {
      samples: wall,
      sample: samplePage,
      statistics: statisticsPage,
      shards: shardsPage,
      problems: problemsPage,
      plan: planPage,
      live: livePage,
    }[path] || wall;
  try {
    await draw(words, () => view === state.view);
  } catch (error) {
    if (view === state.view) say(error.message);
  }
}

async function refresh() {
  try {
    const before = state.facts,
      facts = (state.facts = await ask("api/state"));
    if (before && before.mode === "indexing" && facts.mode !== "indexing" && where().path !== "sample" && scrollY < 80)
      route();
    document.getElementById("title").textContent = facts.title || "wl view";
    document.title = facts.title ? `${facts.title} - wl view` : "wl view";
    const samples = `${count(facts.samples)}${facts.complete ? "" : "+"} samples`;
    const status = document.getElementById("status");
    status.textContent = {
      live: "",
      indexed: samples,
      streamed: `${samples}, streamed`,
      indexing: `${samples}, indexing ${facts.indexed} of ${many(facts.shards, "shard")}`,
    }[facts.mode];
    status.title = facts.errors.join("\n");
    const tab = document.querySelector('#tabs a[data-path="live"]');
    tab.textContent = facts.live ? `Live (${facts.live})` : "Live";
    const problems = document.querySelector('#tabs a[data-path="problems"]');
    problems.textContent = facts.problems ? `Problems (${count(facts.problems)})` : "Problems";
    setTimeout(refresh, facts.mode === "indexing" ? 700 : 4000);
  } catch (error) {
    document.getElementById("status").textContent = "ended";
    say(error.message);
  }
}

// -- keys --------------------------------------------------------------------------------

const KEYS = [
  ["/", "search"],
  ["← → ↑ ↓", "move on the wall; before and after on a sample"],
  ["Enter", "open the sample"],
  ["Esc", "back to the wall"],
  ["PageUp PageDown", "pages of the wall"],
  ["+ -", "larger and smaller pictures"],
  ["1 2 3 4 5 6", "the views, in their order"],
  ["t", "light or dark"],
  ["?", "these keys"],
];

function showKeys() {
  const dialog = document.getElementById("keys");
  dialog.replaceChildren(
    h("h1", {}, "Keys"),
    h(
      "dl",
      {},
      KEYS.map(([key, text]) => [
        h(
          "dt",
          {},
          key.split(" ").map((one) => [h("kbd", {}, one), " "]),
        ),
        h("dd", {}, text),
      ]),
    ),
    h("h2", {}, "Conditions"),
    h(
      "p",
      { class: "soft" },
      "Fields are names: ",
      h("code", {}, 'json.score > 0.5 and "dog" in txt'),
      ". There are len, min, max, abs, sum, int, float, str, lower(), and of fields size(jpg), width(jpg), height(jpg), has(json). ",
      h("code", {}, '_["caption.txt"]'),
      " is a field with a dot, ",
      h("code", {}, "key"),
      " and ",
      h("code", {}, "shard"),
      " are there too.",
    ),
    h("form", { method: "dialog" }, h("button", { class: "button main" }, "close")),
  );
  dialog.showModal();
}

function theme() {
  const dark = document.documentElement.dataset.theme !== "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  remember("theme", dark ? "dark" : "light");
}

function moveOnWall(event) {
  const tiles = [...document.querySelectorAll(".tile")],
    place = tiles.indexOf(document.activeElement);
  if (!tiles.length) return;
  const top = tiles[0].offsetTop,
    columns = tiles.findIndex((one) => one.offsetTop > top);
  const step = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: columns > 0 ? -columns : -tiles.length,
    ArrowDown: columns > 0 ? columns : tiles.length,
  }[event.key];
  const next = tiles[place < 0 ? 0 : place + step];
  if (next) {
    next.focus();
    next.scrollIntoView({ block: "nearest" });
    event.preventDefault();
  }
}

function onKey(event) {
  const typing = /^(INPUT|TEXTAREA|SELECT|AUDIO|VIDEO)$/.test(document.activeElement.tagName);
  if (event.key === "Escape" && document.activeElement.id === "search") return main.focus();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
  const { path } = where();
  const onSample = path === "sample";
  if (event.key === "/") {
    const search = document.getElementById("search");
    if (search) {
      search.focus();
      search.select();
    } else go("samples", {});
    event.preventDefault();
  } else if (event.key === "?") showKeys();
  else if (event.key === "t") theme();
  else if (event.key === "+" || event.key === "=") setTile(state.tile + 24);
  else if (event.key === "-") setTile(state.tile - 24);
  else if (/^[1-6]$/.test(event.key)) go(TABS[Number(event.key) - 1][0], {});
  else if (event.key === "Escape" && onSample) back();
  else if (onSample && (event.key === "ArrowLeft" || event.key === "k") && state.steps && state.steps.before)
    state.steps.before();
  else if (onSample && (event.key === "ArrowRight" || event.key === "j") && state.steps) state.steps.after();
  else if (!onSample && event.key.startsWith("Arrow")) moveOnWall(event);
  else if (path === "samples" && state.pages && event.key === "PageDown" && state.pages.after) {
    state.pages.after();
    event.preventDefault();
  } else if (path === "samples" && state.pages && event.key === "PageUp" && state.pages.before) {
    state.pages.before();
    event.preventDefault();
  }
}

// -- begin --------------------------------------------------------------------------------

const wanted = remembered("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.documentElement.dataset.theme = wanted;
document
  .getElementById("tabs")
  .append(...TABS.map(([path, text]) => h("a", { href: `#/${path}`, "data-path": path }, text)));
document.getElementById("theme").addEventListener("click", theme);
document.getElementById("help").addEventListener("click", showKeys);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("keydown", onKey);
addEventListener("hashchange", route);
refresh().then(route);
