// The page of a query server: feeds the panel's front end from /page/changes, and shows a store's rows when its shape is chosen.
// Everything that comes from a store is inserted as text. Nothing is fetched from elsewhere.
import panel from "./panel.js";

const state = {
  name: "", svg: "", marks: {}, flows: [], status: "", note: "", busy: false, changed: false, planned: false, outdated: false,
  selected: "", failure: "", detail: "", about: "", values: "", paging: {}, history: [], shape_history: [], beat: 0, detached: true, source: "query server",
  view: { clusters: 0, collapsed: 0, nodes: 0, foldable: false, repartitions: false, names: false }, stores: {},
};
const listeners = [];
const model = {
  get: (name) => state[name],
  on: (event, call) => listeners.push([event, call]),
  off: () => {},
  send: (message) => {
    if (message.do === "select") choose(String(message.shape ?? ""));
    else if (message.do === "rows") turn(message);
    else if (message.do === "show" || message.do === "fold") draw(message);
  },
};

function set(changes) {
  Object.assign(state, changes);
  const events = new Set(Object.keys(changes).map((name) => `change:${name}`));
  const calls = new Set(listeners.filter(([event]) => events.has(event)).map(([, call]) => call));
  for (const call of calls) call();
}

const TIMED = { window: "windows", "timestamped-window": "windows", "time-ordered-window": "windows", session: "sessions", versioned: "versions" };
const ROWS = 20;
let pages = [""]; // where the pages up to the present one begin
let filter = "";
let following = "";

async function choose(shape) {
  pages = [""];
  filter = "";
  set({ selected: shape, detail: "", paging: {} });
  if (shape.startsWith("store:")) await show(shape);
}

async function turn({ turn: to, filter: text }) {
  if (text !== undefined) {
    filter = text;
    pages = [""];
  } else if (to === "next" && following) {
    pages.push(following);
  } else if (to === "previous" && pages.length > 1) {
    pages.pop();
  }
  await show(state.selected);
}

// A filter is the beginning of a key where keys are text, else a whole key.
function request(store) {
  const [kind, serde] = state.stores[store] ?? [];
  const timed = TIMED[kind];
  const name = encodeURIComponent(store);
  if (!filter) return { path: timed && timed !== "versions" ? `state/${timed}/${name}` : `state/range/${name}` };
  if (timed) return { path: `state/${timed}/${name}/${encodeURIComponent(filter)}` };
  return serde === "string" ? { path: `state/prefix/${name}`, prefix: filter } : { path: `state/range/${name}`, from: filter, to: filter };
}

async function show(shape) {
  const store = shape.slice("store:".length);
  const { path, ...parameters } = request(store);
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries({ ...parameters, limit: ROWS, stale: "true" })) url.searchParams.set(name, value);
  const [page, text] = [pages.at(-1), filter];
  if (page) url.searchParams.set("page", page);
  let answer;
  try {
    answer = await (await fetch(url, { headers: { Accept: "application/json" } })).json();
  } catch (error) {
    answer = { message: String(error) };
  }
  if (state.selected !== shape || pages.at(-1) !== page || filter !== text) return; // it was turned meanwhile
  following = answer.next ?? "";
  const [kind, serde] = state.stores[store] ?? [];
  const count = answer.rows ? `${answer.rows.length} ${answer.rows.length === 1 ? "row" : "rows"}${answer.stale ? `, stale by ${answer.lag}` : ""}` : "";
  set({
    detail: table(answer).outerHTML,
    paging: {
      filter,
      label: TIMED[kind] || serde !== "string" ? "key" : "keys that begin with",
      previous: pages.length > 1,
      next: following !== "",
      text: pages.length > 1 ? `page ${pages.length}, ${count}` : count,
    },
  });
}

setInterval(() => {
  if (state.selected.startsWith("store:") && !document.hidden) show(state.selected);
}, 2000);

function make(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function table(answer) {
  if (!answer.rows) return make("pre", `${answer.message ?? "no answer"}\n${answer.hint ?? ""}`, { role: "alert" });
  const rows = make("table", "", { class: "rows" });
  const names = Object.keys(answer.rows[0] ?? { key: 0, value: 0 });
  const head = make("tr");
  head.append(...names.map((name) => make("th", name)));
  rows.append(head);
  for (const row of answer.rows) {
    const line = make("tr");
    line.append(...names.map((name) => make("td", typeof row[name] === "string" ? row[name] : JSON.stringify(row[name]))));
    rows.append(line);
  }
  return rows;
}

const place = document.createElement("div");
document.querySelector("#picture").append(place);
let started = false;

// How the picture is drawn is this page's own; the server draws it so.
const view = { names: false, repartitions: false, collapsed: new Set() };
let changes = null;
function follow() {
  changes?.close();
  const query = new URLSearchParams({ names: view.names, repartitions: view.repartitions, collapsed: [...view.collapsed].join() });
  changes = new EventSource(`page/changes?${query}`);
  changes.onmessage = (event) => {
    set(JSON.parse(event.data));
    if (started) return;
    started = true;
    document.title = state.name;
    panel.render({ model, el: place });
  };
}

function draw({ names = view.names, repartitions = view.repartitions, cluster }) {
  Object.assign(view, { names, repartitions });
  if (cluster === "none") view.collapsed.clear();
  else if (cluster === "all") for (const part of document.querySelectorAll("[data-fold]")) view.collapsed.add(Number(part.dataset.fold));
  else if (cluster !== undefined && !view.collapsed.delete(cluster)) view.collapsed.add(cluster);
  follow();
}

follow();
