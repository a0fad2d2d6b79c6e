// The live picture of an application: what Python drew, buttons, and what is behind the selected shape. One file, nothing is fetched.
// `svg`, `detail`, `about` and `values` are markup of the Python side's one markup module, which escapes by construction; all else goes in as text.
// `model` is an anywidget model, or anything with its get, on, off and send.

const STYLE = `
.ks-panel{font:12px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color1,inherit)}
.ks-panel .bar{display:flex;gap:6px;align-items:center;margin:4px 0;flex-wrap:wrap}
.ks-panel button{font:inherit;padding:3px 10px;border:1px solid var(--jp-border-color1,#8888);border-radius:4px;cursor:pointer;
background:var(--jp-layout-color1,#f6f8fa);color:inherit}
.ks-panel button:hover:not(:disabled){background:var(--jp-layout-color2,#eaeef2)}
.ks-panel button:focus-visible{outline:2px solid var(--jp-brand-color1,#0969da);outline-offset:1px}
.ks-panel button:disabled{opacity:.45;cursor:default}
.ks-panel button.waits:disabled{opacity:.8;border-style:dashed}
.ks-panel button.edit.changed,.ks-panel button.apply{border-color:var(--jp-warn-color1,#9a6700);font-weight:600}
.ks-panel [hidden]{display:none}
.ks-panel .status{margin-left:6px;white-space:pre-wrap;overflow-wrap:anywhere}
.ks-panel .body{display:flex;flex-wrap:wrap;gap:4px 20px;align-items:flex-start}
.ks-panel .picture{overflow:auto;max-height:80vh;max-width:100%}
.ks-panel .picture svg{display:block;max-width:100%;height:auto}
.ks-panel [data-node]{cursor:pointer}
.ks-panel [data-node].selected .outline{stroke-width:4}
.ks-panel .behind{flex:1 1 340px;min-width:0;max-height:80vh;overflow:auto}
.ks-panel .behind>div{margin-bottom:10px}
.ks-panel .behind>div:empty{display:none}
.ks-panel pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0;padding:6px 8px;background:var(--jp-layout-color2,#eef1f4);
border-radius:4px;max-height:16em;overflow:auto;font:12px var(--jp-code-font-family,ui-monospace,monospace)}
.ks-panel pre.ks-error{border-left:3px solid var(--jp-error-color1,#cf222e)}
.ks-panel mark{background:var(--jp-warn-color3,#fff8c5);color:inherit;display:inline-block;min-width:100%}
[data-jp-theme-light='false'] .ks-panel mark{background:#5a4a00}
.ks-panel .ks-go{display:none;margin-left:6px}
body[data-kstreams-cells] .ks-panel .ks-go{display:inline}
`;

const ACTIONS = {
  pause: ["running"],
  resume: ["paused", "stopped", "failed"],
  stop: ["running", "paused", "failed"],
  edit: ["running", "paused", "stopped", "failed"],
  apply: ["running", "paused", "stopped", "failed"],
};
const TITLES = {
  pause: "Stop at a commit",
  resume: "Go on from the last commit",
  stop: "Stop, and let go of everything; state and offsets stay",
  edit: "Show what the notebook's builder would change",
  apply: "Apply the plan that is shown",
};
const HEARTBEAT_MS = 4000;
const ANSWER_MS = 400; // a kernel that listens has said `busy` by then
const LINE = 15;
const SMALLEST = 0.7;
let views = 0;

// Lines of a shape: its name and detail stay, what a mark adds is replaced, and all are centred again.
export function setMark(group, mark) {
  const said = JSON.stringify(mark);
  if (group.ksMark === said) return false;
  group.ksMark = said;
  for (const text of group.querySelectorAll("text.badge, text.number")) text.remove();
  for (const name of [...group.classList]) if (name.startsWith("is-")) group.classList.remove(name);
  for (const [kind, content] of mark) {
    if (kind === "state") {
      if (content) group.classList.add(content);
      continue;
    }
    const text = document.createElementNS(group.namespaceURI, "text");
    text.setAttribute("class", kind);
    text.setAttribute("x", group.dataset.x);
    text.textContent = content;
    group.append(text);
  }
  const lines = group.querySelectorAll("text");
  const top = Number(group.dataset.y) - lines.length * (LINE / 2) + 11;
  lines.forEach((line, index) => line.setAttribute("y", top + LINE * index));
  const spoken = mark.filter(([kind]) => kind !== "state").map(([, content]) => content);
  group.setAttribute("aria-label", [group.dataset.said, ...spoken].join(", "));
  return true;
}

function render({ model, el }) {
  const view = `${Date.now().toString(36)}-${++views}`;
  const make = (tag, className, parent) => {
    const made = document.createElement(tag);
    made.className = className;
    parent.append(made);
    return made;
  };
  const say = (message) => model.send({ view, ...message });
  const root = make("div", "ks-panel", el);
  root.setAttribute("role", "region");
  make("style", "", root).textContent = STYLE;
  const bar = make("div", "bar", root);
  bar.setAttribute("role", "toolbar");
  const body = make("div", "body", root);
  const picture = make("div", "picture", body);
  const behind = make("div", "behind", body);
  behind.tabIndex = 0;
  behind.setAttribute("role", "region");
  behind.setAttribute("aria-label", "behind the selected shape");
  const detail = make("div", "detail", behind);
  const values = make("div", "values", behind);
  const about = make("div", "about", behind);

  // Where the kernel hears one message after the other, what was pressed acts when the running cell ends: the button says so.
  let unanswered = 0;
  let waiting = "";
  const wait = (action) => {
    clearTimeout(unanswered);
    waiting = action;
    for (const [name, button] of buttons) {
      const waits = name === action;
      button.classList.toggle("waits", waits);
      button.textContent = waits ? `${name}: waits for the running cell` : name;
      button.title = waits ? "The kernel hears it when the running cell ends" : TITLES[name];
    }
    tell();
  };
  const answered = () => {
    clearTimeout(unanswered);
    if (waiting) wait("");
  };

  const buttons = Object.keys(ACTIONS).map((action) => {
    const button = make("button", action, bar);
    button.type = "button";
    button.textContent = action;
    button.title = TITLES[action];
    button.addEventListener("click", () => {
      say({ do: action });
      clearTimeout(unanswered);
      unanswered = setTimeout(() => wait(action), ANSWER_MS);
    });
    return [action, button];
  });
  const status = make("span", "status", bar);
  status.setAttribute("role", "status");

  let groups = new Map();
  let chosen = model.get("selected");
  const point = (group) => {
    // one shape is in the tab order; arrow keys go from shape to shape
    for (const other of groups.values()) other.setAttribute("tabindex", other === group ? "0" : "-1");
  };
  const mark = () => {
    for (const [id, group] of groups) {
      group.classList.toggle("selected", id === chosen);
      group.setAttribute("aria-pressed", String(id === chosen));
    }
    point(groups.get(chosen) ?? groups.values().next().value);
  };
  const update = () => {
    const began = performance.now();
    const marks = model.get("marks");
    let changed = 0;
    for (const [id, group] of groups) changed += setMark(group, marks[id] ?? []) ? 1 : 0;
    root.dataset.updateMs = (performance.now() - began).toFixed(2);
    root.dataset.updated = changed;
  };
  const draw = () => {
    const began = performance.now();
    const focused = picture.contains(document.activeElement) ? document.activeElement.dataset.node : null;
    picture.innerHTML = model.get("svg");
    const svg = picture.querySelector("svg");
    // a large picture is scrolled rather than made too small to read
    if (svg) svg.style.minWidth = `${SMALLEST * Number(svg.getAttribute("width"))}px`;
    // an arrow head of its own: the page's first one of that name may be in a tab that is hidden, and so would be all that refer to it
    const arrow = svg?.querySelector("marker");
    if (arrow) {
      arrow.id = `ks-arrow-${view}`;
      for (const link of svg.querySelectorAll("[marker-end]")) link.setAttribute("marker-end", `url(#${arrow.id})`);
    }
    groups = new Map([...picture.querySelectorAll("[data-node]")].map((group) => [group.dataset.node, group]));
    for (const group of groups.values()) group.setAttribute("role", "button");
    update();
    if (!groups.has(chosen)) chosen = model.get("selected"); // a choice that the kernel knows no shape for stays without an answer
    mark();
    explain();
    if (focused) groups.get(focused)?.focus();
    root.dataset.drawMs = (performance.now() - began).toFixed(2);
  };
  const tell = () => {
    const state = model.get("status");
    status.textContent = model.get("note") || state;
    root.setAttribute("aria-label", `topology of ${model.get("name")}`);
    bar.setAttribute("aria-label", `control of ${model.get("name")}`);
    root.dataset.status = state;
    root.setAttribute("aria-busy", String(model.get("busy")));
    for (const [action, button] of buttons) {
      button.disabled = model.get("busy") || action === waiting || !ACTIONS[action].includes(state);
      button.hidden = action === "apply" && !model.get("planned");
      if (action === "edit") button.classList.toggle("changed", model.get("changed"));
    }
  };
  const replace = (place, html) => {
    if (place.ksHtml === html) return;
    place.ksHtml = html;
    place.innerHTML = html;
  };
  const clear = (place) => {
    place.ksHtml = "";
    place.replaceChildren();
  };
  const explain = () => {
    // until the kernel has heard of a choice it tells of the shape before: its rows, and the button to its cell
    if (chosen !== model.get("selected") && !model.get("planned")) {
      for (const place of [detail, values, about]) clear(place);
      return;
    }
    replace(detail, model.get("detail"));
    replace(values, model.get("values"));
    replace(about, model.get("about"));
  };
  const choose = (id) => {
    chosen = id;
    mark();
    explain();
    say({ do: "select", shape: id });
  };
  const chosenElsewhere = () => {
    chosen = model.get("selected");
    mark();
    explain();
  };
  const nearest = (from, key) => {
    // the shape whose middle is nearest in that direction, sideways distance counting double
    const horizontal = key === "ArrowLeft" || key === "ArrowRight";
    const forward = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
    let best = null;
    let least = Infinity;
    for (const other of groups.values()) {
      const dx = Number(other.dataset.x) - Number(from.dataset.x);
      const dy = Number(other.dataset.y) - Number(from.dataset.y);
      const along = forward * (horizontal ? dx : dy);
      const across = Math.abs(horizontal ? dy : dx);
      if (along > 1 && along + 2 * across < least) {
        best = other;
        least = along + 2 * across;
      }
    }
    return best;
  };
  const press = (event) => {
    const group = event.target.closest("[data-node]");
    if (!group) return;
    if (event.key === "Enter" || event.key === " ") {
      choose(group.dataset.node);
    } else if (event.key === "Escape") {
      choose("");
    } else if (event.key.startsWith("Arrow")) {
      const next = nearest(group, event.key);
      if (next) {
        point(next);
        next.focus();
      }
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  picture.addEventListener("click", (event) => {
    const group = event.target.closest("[data-node]");
    if (group) choose(group.dataset.node);
  });
  picture.addEventListener("keydown", press);
  // the side panel's part of JupyterLab, where it is installed, knows how to show a cell
  behind.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-cell]")?.dataset.cell;
    if (cell) document.dispatchEvent(new CustomEvent("kstreams:show-cell", { detail: { cell } }));
  });

  const listen = [
    ["change:svg", draw],
    ["change:marks", update],
    ["change:status change:note change:busy change:planned change:changed", tell],
    ["change:detail change:about change:values", explain],
    ["change:selected", chosenElsewhere],
    ["change:busy", answered],
  ];
  for (const [events, call] of listen) model.on(events, call);
  const beat = setInterval(() => say({ do: "alive" }), HEARTBEAT_MS);
  say({ do: "alive" });
  draw();
  tell();
  explain();
  return () => {
    clearInterval(beat);
    clearTimeout(unanswered);
    for (const [events, call] of listen) model.off(events, call);
    say({ do: "gone" });
  };
}

export default { render };
