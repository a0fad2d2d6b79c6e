// The live picture of an application: Python's drawing, buttons, and a drawer with the details of the selected shape. Nothing is fetched:
// `kernel_ext/front_end.py` bundles these files into one module for the widget, webpack does for JupyterLab's side panel.
// `svg`, `failure`, `detail`, `about` and `values` are written by the Python side's markup module, which escapes by construction;
// everything else is inserted as text. `model` is an anywidget model, or any object with its get, on, off and send.
import { pressed } from "./failure.js";
import { lostText, watchKernel } from "./liveness.js";
import { setFlow, setMark, showHistory } from "./shapes.js";
import { STYLE } from "./style.js";
import { SVG, makeViewport } from "./viewport.js";

const ACTIONS = {
  pause: ["running"],
  resume: ["paused", "stopped", "failed"],
  stop: ["running", "paused", "failed"],
  edit: ["running", "paused", "stopped", "failed"],
};
const TITLES = {
  pause: "Stop at a commit",
  resume: "Continue from the last commit",
  stop: "Stop and release all resources; state and offsets stay",
  edit: "Show what the notebook's builder would change",
  apply: "Apply the plan that is shown",
  compare: "Process the last records again with and without the change: which rows differ, and from which node on",
  fork: "Run the change beside the application first: on its input, from a copy of its state, into topics of its own",
};
const OF_A_PLAN = ["apply", "compare", "fork"];
const SIGNS = { running: "▶", starting: "…", restoring: "⟳", paused: "‖", failed: "✖", stopped: "■", created: "○", closed: "■" };
const ANSWER_MS = 400; // a responsive kernel has answered with `busy` by then
const TYPED_MS = 300; // after the last key
const MANY = 20; // above this number of nodes there is a map
let views = 0;

function render({ model, el }) {
  const view = `${Date.now().toString(36)}-${++views}`;
  const make = (tag, className, parent) => {
    const made = document.createElement(tag);
    made.className = className;
    parent.append(made);
    return made;
  };
  const press = (name, parent, title, call, text = name) => {
    const button = make("button", name, parent);
    button.type = "button";
    button.textContent = text;
    button.title = title;
    button.addEventListener("click", call);
    return button;
  };
  const region = (className, parent, label, role = "region") => {
    const made = make("div", className, parent);
    made.setAttribute("role", role);
    made.setAttribute("aria-label", label);
    return made;
  };
  const send = (message) => {
    try {
      model.send({ view, ...message });
    } catch {
      // the comm was closed with its kernel; `lost` says so
    }
  };

  const root = region("ks-panel", el, "topology");
  make("style", "", root).textContent = STYLE;
  const bar = region("bar", root, "control", "toolbar");
  const lost = make("div", "lost", root);
  lost.setAttribute("role", "alert");
  const tools = region("bar tools", root, "picture", "toolbar");
  tools.dataset.lmSuppressShortcuts = "true"; // arrow keys are ours here, not the notebook's
  const history = make("span", "history", tools);
  const [rateHistory, lagHistory] = [make("span", "rate", history), make("span", "lag", history)];
  const body = make("div", "body", root);
  const picture = make("div", "picture", body);
  const canvas = region("canvas", picture, "drawing: drag to move, Ctrl and wheel or + and - to zoom, f to fit");
  canvas.dataset.lmSuppressShortcuts = "true";
  const map = document.createElementNS(SVG, "svg");
  map.setAttribute("class", "map");
  map.setAttribute("role", "img");
  map.setAttribute("aria-label", "the whole picture; a click goes there");
  picture.append(map);

  const drawer = region("drawer", body, "details of the selected shape");
  const head = make("div", "drawer-head", drawer);
  const heading = make("b", "heading", head);
  const outdated = make("div", "outdated", drawer);
  outdated.setAttribute("role", "status");
  outdated.textContent = "Cells have changed the builder since: press edit for the current plan.";
  const shapeHistory = make("div", "history", drawer);
  const [shapeRate, shapeLag] = [make("span", "rate", shapeHistory), make("span", "lag", shapeHistory)];
  const behind = make("div", "behind", drawer);
  behind.tabIndex = 0;
  const failure = make("div", "failure", behind);
  const paging = region("paging", behind, "rows of the store", "search");
  paging.dataset.lmSuppressShortcuts = "true";
  const detail = make("div", "detail", behind);
  const values = make("div", "values", behind);
  const about = make("div", "about", behind);

  // ---- buttons

  // Without subshells the kernel handles a button only when the running cell ends: the button says so.
  let unanswered = 0;
  let waiting = "";
  const wait = (action) => {
    clearTimeout(unanswered);
    waiting = action;
    for (const [name, button] of buttons) {
      const waits = name === action;
      button.classList.toggle("waits", waits);
      button.textContent = waits ? `${name}: waits for the running cell` : name;
      button.title = waits ? "The kernel acts when the running cell ends" : TITLES[name];
    }
    showStatus();
  };
  const answered = () => {
    clearTimeout(unanswered);
    if (waiting) wait("");
    enable();
  };
  const act = (action) => () => {
    send({ do: action });
    clearTimeout(unanswered);
    unanswered = setTimeout(() => wait(action), ANSWER_MS);
  };
  const buttons = Object.keys(ACTIONS).map((action) => [action, press(action, bar, TITLES[action], act(action))]);
  const ofPlan = OF_A_PLAN.map((action) => [action, press(action, head, TITLES[action], act(action))]);
  buttons.push(...ofPlan);
  press("close", head, "Close (Escape)", () => choose(""), "×").setAttribute("aria-label", "close");
  const chip = make("span", "chip", bar);
  const status = make("span", "status", bar);
  status.setAttribute("role", "status");

  // ---- the rows of a store, page by page

  let typing = 0;
  const filter = make("input", "filter", paging);
  filter.type = "search";
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => send({ do: "rows", filter: filter.value }), TYPED_MS);
  });
  const previousPage = press("previous", paging, "The rows before", () => send({ do: "rows", turn: "previous" }));
  const nextPage = press("next", paging, "The rows after", () => send({ do: "rows", turn: "next" }));
  const paged = make("span", "paged", paging);
  paged.setAttribute("role", "status");
  const earlier = press("earlier", paging, "The rows as they were after an earlier commit", () => send({ do: "rows", earlier: moments.hidden }));
  const moments = make("input", "moments", paging);
  moments.type = "range";
  moments.min = "0";
  moments.setAttribute("aria-label", "commit");
  moments.addEventListener("change", () => send({ do: "rows", moment: Number(moments.value) }));
  const moment = make("span", "moment", paging);
  moment.setAttribute("role", "status");
  const showPaging = () => {
    const now = (chosen === model.get("selected") && !model.get("planned") && model.get("paging")) || {};
    paging.hidden = now.text === undefined;
    const explained = now.earlier !== undefined && !life.kernel.lost;
    detail.classList.toggle("explained", explained);
    detail.title = explained ? "Click a row: which records made it" : "";
    if (paging.hidden) return;
    filter.placeholder = now.label;
    filter.setAttribute("aria-label", now.label);
    if (filter.getRootNode().activeElement !== filter) filter.value = now.filter;
    const gone = Boolean(life.kernel.lost);
    filter.disabled = gone;
    previousPage.disabled = gone || !now.previous;
    nextPage.disabled = gone || !now.next;
    paged.textContent = now.text;
    earlier.hidden = now.earlier === undefined;
    earlier.disabled = gone;
    earlier.setAttribute("aria-pressed", String(Boolean(now.earlier)));
    moments.hidden = moment.hidden = !now.earlier;
    moments.disabled = gone;
    if (!now.earlier) return;
    moments.max = String(now.earlier.last);
    if (moments.getRootNode().activeElement !== moments || now.earlier.at === now.earlier.last) moments.value = String(now.earlier.at);
    moments.setAttribute("aria-valuetext", now.earlier.text);
    moment.textContent = now.earlier.text;
  };

  // ---- the picture

  const toggle = (name, title, call) => {
    const button = press(name, tools, title, call);
    button.setAttribute("aria-pressed", "false");
    return button;
  };
  const folds = press("folds", tools, "Draw each sub-topology as one box, or its nodes", () =>
    send({ do: "fold", cluster: allFolded() ? "none" : "all" }), "collapse");
  const repartitions = toggle("repartitioning", "Draw the filter, sink, topic and source of each repartitioning", () =>
    send({ do: "show", repartitions: !model.get("view").repartitions }));
  const names = toggle("names", "Show generated names in full, with their numbers", () => send({ do: "show", names: !model.get("view").names }));
  const mapped = toggle("map-toggle", "Show a map of the whole picture", () => showMap(map.hasAttribute("hidden")));
  mapped.textContent = "map";
  make("span", "gap", tools);
  press("zoom-out", tools, "Zoom out (-)", () => viewport.zoomOut(), "−").setAttribute("aria-label", "zoom out");
  const scale = press("scale", tools, "Actual size (0)", () => viewport.actual(), "100 %");
  press("zoom-in", tools, "Zoom in (+)", () => viewport.zoomIn(), "+").setAttribute("aria-label", "zoom in");
  press("fit", tools, "Fit to the view (f)", () => viewport.fit());
  // one tab stop; arrow keys move between the buttons
  const stop = (button) => {
    for (const other of tools.querySelectorAll("button")) other.tabIndex = other === button ? 0 : -1;
  };
  stop(tools.querySelector(".fit"));
  tools.addEventListener("keydown", (event) => {
    const all = [...tools.querySelectorAll("button:not(:disabled):not([hidden])")];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !all.length) return;
    const next = all.at((all.indexOf(event.target) + step) % all.length);
    stop(next);
    next.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  const allFolded = () => model.get("view").collapsed === model.get("view").clusters;

  const viewport = makeViewport({
    canvas,
    map,
    onScale: (now) => {
      scale.textContent = `${Math.round(100 * now)} %`;
      root.dataset.scale = now.toFixed(3);
    },
  });
  let groups = new Map();
  let links = [];
  let mapWanted = true;
  const showMap = (wanted) => {
    mapWanted = wanted;
    const many = model.get("view").nodes > MANY;
    mapped.hidden = !many;
    map.toggleAttribute("hidden", !(many && wanted));
    map.hidden = !(many && wanted);
    mapped.setAttribute("aria-pressed", String(wanted));
    viewport.drawMap([...groups.values()]);
  };

  let chosen = model.get("selected");
  const point = (group) => {
    // one shape is in the tab order; arrow keys go from shape to shape
    for (const other of groups.values()) other.setAttribute("tabindex", other === group ? "0" : "-1");
  };
  const mark = () => {
    for (const [id, group] of groups) {
      group.classList.toggle("selected", id === chosen);
      if (group.dataset.fold === undefined) group.setAttribute("aria-pressed", String(id === chosen));
    }
    const shapes = [...groups.values()];
    point(groups.get(chosen) ?? shapes.find((group) => group.dataset.top !== undefined) ?? shapes[0]);
  };
  const update = () => {
    const began = performance.now();
    const marks = model.get("marks");
    const flows = model.get("flows");
    let changed = 0;
    for (const [id, group] of groups) {
      if (group.dataset.top === undefined || !setMark(group, marks[id] ?? [])) continue; // the frame of a sub-topology has no marks
      changed += 1;
      group.ksMapped?.setAttribute("class", group.getAttribute("class"));
    }
    for (const link of links) {
      const [width, rate] = flows[link.dataset.link] ?? [0, null];
      setFlow(link, width, rate);
    }
    root.dataset.updateMs = (performance.now() - began).toFixed(2);
    root.dataset.updated = changed;
  };
  // a sub-topology that was folded or unfolded by the keyboard keeps the focus
  const otherForm = (id) => `${id.startsWith("part:") ? "block" : "part"}:${id.slice(id.indexOf(":") + 1)}`;
  const draw = () => {
    const began = performance.now();
    const focused = canvas.contains(document.activeElement) ? document.activeElement.dataset.node : null;
    canvas.innerHTML = model.get("svg");
    const svg = canvas.querySelector("svg");
    // a unique id: the first marker of a shared name may be in a hidden tab, which would hide all arrow heads that refer to it
    const arrow = svg?.querySelector("marker");
    if (arrow) {
      arrow.id = `ks-arrow-${view}`;
      for (const link of svg.querySelectorAll("[marker-end]")) link.setAttribute("marker-end", `url(#${arrow.id})`);
    }
    groups = new Map([...canvas.querySelectorAll("[data-node]")].map((group) => [group.dataset.node, group]));
    links = [...canvas.querySelectorAll("[data-link]")];
    for (const group of groups.values()) group.setAttribute("role", "button");
    update();
    viewport.show(svg, [...groups.values()]);
    showMap(mapWanted);
    if (!groups.has(chosen)) chosen = model.get("selected"); // the kernel does not answer for a shape that it does not know
    mark();
    explain();
    if (focused) (groups.get(focused) ?? groups.get(otherForm(focused)))?.focus({ preventScroll: true });
    root.dataset.drawMs = (performance.now() - began).toFixed(2);
  };

  // ---- status

  const showStatus = () => {
    const { kernel } = life;
    const gone = Boolean(kernel.lost);
    const state = gone ? "no kernel" : model.get("status");
    const name = model.get("name");
    const source = model.get("source") ?? "kernel"; // of this state: a query server's page has another
    chip.textContent = gone ? `◌ no ${source}` : `${SIGNS[state] ?? "?"} ${state}`;
    status.textContent = gone ? name : model.get("note") || state;
    lost.hidden = !gone;
    const text = gone ? lostText(kernel, name, model.get("detached"), source) : "";
    if (lost.textContent !== text) lost.textContent = text;
    root.setAttribute("aria-label", `topology of ${name}`);
    bar.setAttribute("aria-label", `control of ${name}`);
    root.dataset.status = state;
    if (gone) root.dataset.kernel = kernel.lost;
    else delete root.dataset.kernel;
    root.setAttribute("aria-busy", String(model.get("busy")));
    const shown = model.get("view");
    for (const [action, button] of buttons) {
      const can = OF_A_PLAN.includes(action) ? ACTIONS.edit.includes(state) && !model.get("outdated") : ACTIONS[action].includes(state);
      button.disabled = gone || model.get("busy") || action === waiting || !can;
      if (action === "edit") button.classList.toggle("changed", model.get("changed"));
    }
    for (const [, button] of ofPlan) button.hidden = !model.get("planned");
    outdated.hidden = !(model.get("planned") && model.get("outdated"));
    folds.hidden = shown.clusters < 2;
    folds.textContent = allFolded() ? "expand" : "collapse";
    repartitions.hidden = !shown.foldable;
    repartitions.setAttribute("aria-pressed", String(shown.repartitions));
    names.setAttribute("aria-pressed", String(shown.names));
    for (const button of [folds, repartitions, names]) button.disabled = gone;
  };
  const drawHistories = () => {
    const show = (elements, points) => {
      showHistory(elements[0], "records per second", points.map(([at, rate]) => [at, rate]), "/s");
      const known = points.filter((point) => point[2] !== null);
      showHistory(elements[1], "lag", known.map((point) => [point[0], point[2]]), "");
    };
    show([rateHistory, lagHistory], model.get("history"));
    show([shapeRate, shapeLag], chosen === model.get("selected") && !model.get("planned") ? model.get("shape_history") : []);
  };
  const replace = (element, html) => {
    if (element.ksHtml === html) return;
    element.ksHtml = html;
    element.innerHTML = html;
  };
  const clear = (element) => {
    element.ksHtml = "";
    element.replaceChildren();
  };
  const titleOf = (id) => {
    const group = groups.get(id);
    const name = id.slice(id.indexOf(":") + 1);
    return `${group?.classList[0]?.split("-").join(" ") ?? id.slice(0, id.indexOf(":"))} ${name}`.trim();
  };
  let dismissed = false; // closed here, without an answer of the kernel
  const open = () => {
    const about = dismissed ? "" : model.get("planned") ? `the plan for ${model.get("name")}` : chosen ? titleOf(chosen) : model.get("detail") ? model.get("name") : "";
    const was = heading.textContent;
    heading.textContent = about;
    drawer.hidden = !about;
    body.classList.toggle("open", Boolean(about));
    if (!about || about === was) return;
    behind.scrollTop = 0;
    // scroll to the drawer's head, and to the shape that the drawer may have covered
    const group = groups.get(chosen);
    if (group) viewport.reveal(group);
    const at = head.getBoundingClientRect();
    if (was !== about && (at.top < 0 || at.bottom > window.innerHeight)) head.scrollIntoView({ block: "nearest" });
  };
  const explain = () => {
    // until the kernel has received a choice, its values are those of the previous shape
    if (chosen !== model.get("selected") && !model.get("planned")) {
      for (const element of [failure, detail, values, about]) clear(element);
    } else {
      replace(failure, model.get("failure"));
      replace(detail, model.get("detail"));
      replace(values, model.get("values"));
      replace(about, model.get("about"));
    }
    enable();
    showPaging();
    open();
    drawHistories();
  };
  // the buttons of a failure
  const enable = () => {
    for (const button of failure.querySelectorAll("[data-do]")) button.disabled = Boolean(life.kernel.lost) || model.get("busy");
  };
  const choose = (id) => {
    const closed = chosen;
    clearTimeout(typing);
    if (id !== chosen) filter.value = "";
    chosen = id;
    dismissed = !id;
    mark();
    explain();
    send({ do: "select", shape: id });
    if (!id) groups.get(closed)?.focus({ preventScroll: true });
  };
  const chosenElsewhere = () => {
    chosen = model.get("selected");
    mark();
    explain();
  };

  // ---- mouse and keyboard

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
  const take = (group) => {
    if (group.dataset.fold === undefined) choose(group.dataset.node);
    else if (!life.kernel.lost) send({ do: "fold", cluster: Number(group.dataset.fold) });
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const group = event.target.closest("[data-node]");
    if (viewport.keys[event.key]) {
      viewport.keys[event.key]();
    } else if (event.key === "Escape") {
      choose("");
    } else if (group && (event.key === "Enter" || event.key === " ")) {
      take(group);
    } else if (group && event.key.startsWith("Arrow")) {
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
  });
  canvas.addEventListener("click", (event) => {
    const group = event.target.closest("[data-node]");
    if (group) take(group);
  });
  drawer.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    choose("");
    event.stopPropagation();
  });
  behind.addEventListener("click", (event) => pressed(event, send));
  detail.addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr");
    if (row && detail.classList.contains("explained")) send({ do: "rows", why: [...row.parentElement.children].indexOf(row) });
  });

  const statusChanged = () => {
    showStatus();
    enable();
    showPaging();
    open();
  };
  const arrived = () => {
    if (model.get("detail") || model.get("planned")) dismissed = false;
    explain();
  };
  // one name per call: only Jupyter's models accept several
  const listeners = [
    [draw, "svg"],
    [update, "marks", "flows"],
    [statusChanged, "status", "note", "busy", "planned", "changed", "outdated", "view", "detached"],
    [arrived, "failure", "detail", "about", "values", "planned"],
    [drawHistories, "history", "shape_history"],
    [showPaging, "paging"],
    [chosenElsewhere, "selected"],
    [answered, "busy"],
  ].flatMap(([call, ...names]) => names.map((name) => [`change:${name}`, call]));
  for (const [event, call] of listeners) model.on(event, call);
  const life = watchKernel({ model, root, alive: () => send({ do: "alive" }), changed: () => statusChanged() });
  draw();
  showStatus();
  explain();
  return () => {
    life.stop();
    viewport.stop();
    clearTimeout(unanswered);
    clearTimeout(typing);
    for (const [event, call] of listeners) model.off(event, call);
    send({ do: "gone" });
  };
}

export default { render };
