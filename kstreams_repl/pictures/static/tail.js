// A live table with a Stop button. `html` is written by the Python side's markup module, which escapes by construction.
import { watchKernel } from "./liveness.js";

const STYLE = `
.ks-tail{font:12px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color1,inherit)}
.ks-tail button{font:inherit;padding:3px 10px;border:1px solid var(--jp-border-color1,#8888);border-radius:4px;cursor:pointer;
background:var(--jp-layout-color1,#f6f8fa);color:inherit;margin-right:8px}
.ks-tail button:focus-visible{outline:2px solid var(--jp-brand-color1,#0969da);outline-offset:1px}
.ks-tail .table{max-height:60vh;overflow:auto}
`;
let views = 0;

function render({ model, el }) {
  const view = `${Date.now().toString(36)}-${++views}`;
  const make = (tag, className, parent) => {
    const made = document.createElement(tag);
    made.className = className;
    parent.append(made);
    return made;
  };
  const root = make("div", "ks-tail", el);
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", model.get("title"));
  make("style", "", root).textContent = STYLE;
  const bar = make("div", "bar", root);
  const button = make("button", "stop", bar);
  button.type = "button";
  const status = make("span", "status", bar);
  status.setAttribute("role", "status");
  const table = make("div", "table", root);
  const send = (message) => {
    try {
      model.send({ view, ...message });
    } catch {
      // the comm was closed with its kernel; the status says so
    }
  };
  const showStatus = () => {
    const { lost } = life.kernel;
    button.textContent = model.get("running") ? "Stop" : "Continue";
    button.disabled = Boolean(lost);
    table.style.filter = lost ? "grayscale(1) opacity(.75)" : "";
    const how = lost ? `, no kernel (${lost === "silent" ? "not connected" : lost}): these are the last rows` : ", stopped";
    status.textContent = model.get("title") + (lost || !model.get("running") ? how : "");
  };
  const draw = () => {
    table.innerHTML = model.get("html");
  };
  button.addEventListener("click", () => send({ do: model.get("running") ? "stop" : "continue" }));
  const listeners = [["change:html", draw], ["change:running", showStatus], ["change:title", showStatus]];
  for (const [event, call] of listeners) model.on(event, call);
  const life = watchKernel({ model, root, alive: () => send({ do: "alive" }), changed: () => showStatus() });
  draw();
  showStatus();
  return () => {
    life.stop();
    for (const [event, call] of listeners) model.off(event, call);
    send({ do: "gone" });
  };
}

export default { render };
