// What all views use. Whatever comes from the data is put into the page as text, never as markup.

export const main = document.getElementById("main");
export const state = {
  facts: null,
  tile: Number(remembered("tile", 168)),
  numbers: [],
  query: "",
  start: 0,
  view: 0,
  timers: [],
};

export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name in node && name !== "list" && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function remembered(name, otherwise) {
  try {
    return localStorage.getItem(`wl-view-${name}`) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`wl-view-${name}`, value);
  } catch {
    /* a private window keeps nothing */
  }
}

export function address(path, words) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(words || {})) if (value !== "" && value !== null) asked.set(name, value);
  const text = asked.toString();
  return text ? `${path}?${text}` : path;
}

export async function ask(path, words) {
  let answer;
  try {
    answer = await fetch(address(path, words), { cache: "no-store" });
  } catch {
    throw new Error("the view has ended: start `wl view` again");
  }
  let value = null;
  try {
    value = await answer.json();
  } catch {
    /* not JSON */
  }
  if (!answer.ok) throw new Error((value && value.error) || `${answer.status} ${answer.statusText}`);
  return value;
}

export const count = (n) => Number(n).toLocaleString("en-US");
export const many = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

export function bytes(n) {
  if (n < 1000) return n === 1 ? "1 byte" : `${Math.round(n)} bytes`;
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    n /= 1000;
    if (n < 1000 || unit === "TB") return `${n.toFixed(1)} ${unit}`;
  }
}

export function short(x) {
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return count(x);
  return Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(Number(x.toPrecision(4)));
}

export function duration(seconds) {
  if (seconds < 60) return `${short(Math.round(seconds * 100) / 100)} s`;
  const whole = Math.round(seconds),
    rest = `${String(Math.floor(whole / 60) % 60).padStart(2, "0")}:${String(whole % 60).padStart(2, "0")}`;
  return whole < 3600 ? rest : `${Math.floor(whole / 3600)}:${rest}`;
}

export function age(then) {
  const seconds = Date.now() / 1000 - then;
  for (const [unit, size] of [
    ["year", 31557600],
    ["month", 2629800],
    ["day", 86400],
    ["hour", 3600],
    ["minute", 60],
  ])
    if (seconds >= size) return `${many(Math.floor(seconds / size), unit)} ago`;
  return "just now";
}

export const hue = (n) => `hsl(${(n * 222.5) % 360} 62% ${n % 2 ? 48 : 60}%)`;
export const named = (field, kind) =>
  kind === "leaf" || /^[A-Za-z]\w*$/.test(field) ? field : `_[${JSON.stringify(field)}]`;
export const fieldWord = (field) => (/^[A-Za-z]\w*$/.test(field) ? field : JSON.stringify(field));

export function say(text) {
  const notice = document.getElementById("notice");
  notice.textContent = text || "";
  notice.hidden = !text;
}

export function later(milliseconds, run) {
  state.timers.push(setTimeout(run, milliseconds));
}

export function show(...nodes) {
  main.replaceChildren(...nodes);
}

/** The top of a page: its title, and what it shows. */
export function heading(title, text) {
  const words = h("div", { class: "grow" }, h("h1", {}, title), h("div", { class: "soft" }, text));
  return h("div", { class: "heading" }, words);
}

export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text), ...more);
}

export function progress(done, total, text) {
  return h(
    "div",
    {},
    h("div", { class: "soft", role: "status" }, text),
    h("div", { class: "progress" }, h("i", { style: { width: `${total ? (100 * done) / total : 0}%` } })),
  );
}

export function where() {
  const [path, words] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    path: path || (state.facts && state.facts.mode === "live" ? "live" : "samples"),
    words: new URLSearchParams(words || ""),
  };
}

export function go(path, words) {
  location.hash = `#/${address(path, words)}`;
}

export function pictureOf(number, field, size, alt, item) {
  const source = address("picture", { n: number, field, size, item: item || "" });
  const image = h("img", { src: source, alt, loading: "lazy", decoding: "async" });
  image.addEventListener("error", async () => {
    let reason = "the picture cannot be shown";
    try {
      await ask(source);
    } catch (error) {
      reason = error.message;
    }
    image.replaceWith(
      h(
        "div",
        { class: "broken", role: "img", "aria-label": `${alt}: ${reason}` },
        h("b", {}, "⚠"),
        h("span", {}, reason),
      ),
    );
  });
  return image;
}
