// A live table with a Stop button. `html` is markup of the Python side's one markup module, which escapes by construction.
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
  const say = (message) => {
    try {
      model.send({ view, ...message });
    } catch {
      // the comm went with its kernel, which is told
    }
  };
  const tell = () => {
    const { lost } = life.kernel;
    button.textContent = model.get("running") ? "Stop" : "Go on";
    button.disabled = Boolean(lost);
    table.style.filter = lost ? "grayscale(1) opacity(.75)" : "";
    const how = lost ? `, no kernel any more (${lost === "silent" ? "not connected" : lost}): these are the last rows` : ", stopped";
    status.textContent = model.get("title") + (lost || !model.get("running") ? how : "");
  };
  const draw = () => {
    table.innerHTML = model.get("html");
  };
  button.addEventListener("click", () => say({ do: model.get("running") ? "stop" : "go on" }));
  model.on("change:html", draw);
  model.on("change:running change:title", tell);
  const life = watchKernel({ model, root, alive: () => say({ do: "alive" }), changed: () => tell() });
  draw();
  tell();
  return () => {
    life.stop();
    model.off("change:html", draw);
    model.off("change:running change:title", tell);
    say({ do: "gone" });
  };
}

export default { render };
