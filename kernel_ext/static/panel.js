// The live picture of an application: what Python drew, buttons, and what is behind the selected shape. One file, nothing is fetched.
// `svg` and `detail` are markup of the Python side's one markup module, which escapes by construction.

const STYLE = `
.ks-panel{font:12px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color1,inherit)}
.ks-panel .bar{display:flex;gap:6px;align-items:center;margin:4px 0;flex-wrap:wrap}
.ks-panel button{font:inherit;padding:3px 10px;border:1px solid var(--jp-border-color1,#8888);border-radius:4px;cursor:pointer;
background:var(--jp-layout-color1,#f6f8fa);color:inherit}
.ks-panel button:disabled{opacity:.45;cursor:default}
.ks-panel .status{margin-left:6px;white-space:pre-wrap}
.ks-panel .picture{overflow:auto;max-height:70vh}
.ks-panel .picture svg{max-width:100%;height:auto}
.ks-panel [data-node]{cursor:pointer}
.ks-panel [data-node].selected .outline{stroke-width:4}
.ks-panel .behind{margin-top:6px;max-height:40vh;overflow:auto}
`;

const ACTIONS = { pause: ["running"], resume: ["paused", "stopped", "failed"], stop: ["running", "paused", "failed"] };
const HEARTBEAT_MS = 4000;

function render({ model, el }) {
  const make = (tag, className, parent) => {
    const made = document.createElement(tag);
    made.className = className;
    parent.append(made);
    return made;
  };
  const root = make("div", "ks-panel", el);
  make("style", "", root).textContent = STYLE;
  const bar = make("div", "bar", root);
  const picture = make("div", "picture", root);
  const detail = make("div", "behind", root);
  detail.setAttribute("aria-live", "polite");

  const buttons = Object.keys(ACTIONS).map((action) => {
    const button = make("button", action, bar);
    button.textContent = action;
    button.addEventListener("click", () => model.send({ do: action }));
    return [action, button];
  });
  const status = make("span", "status", bar);
  status.setAttribute("role", "status");

  const mark = () => {
    for (const group of picture.querySelectorAll("[data-node]")) {
      group.classList.toggle("selected", group.dataset.node === model.get("selected"));
    }
  };
  const draw = () => {
    const focused = picture.contains(document.activeElement) ? document.activeElement.dataset.node : null;
    picture.innerHTML = model.get("svg");
    mark();
    if (focused) picture.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
  };
  const tell = () => {
    const state = model.get("status");
    status.textContent = model.get("note") || state;
    for (const [action, button] of buttons) button.disabled = model.get("busy") || !ACTIONS[action].includes(state);
  };
  const explain = () => {
    detail.innerHTML = model.get("detail");
  };
  const select = (event) => {
    const group = event.target.closest("[data-node]");
    if (!group || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    model.set("selected", group.dataset.node);
    model.save_changes();
    mark();
  };
  picture.addEventListener("click", select);
  picture.addEventListener("keydown", select);

  const listen = [["change:svg", draw], ["change:status change:note change:busy", tell], ["change:detail", explain]];
  for (const [events, call] of listen) model.on(events, call);
  const beat = setInterval(() => model.send({ do: "alive" }), HEARTBEAT_MS);
  model.send({ do: "alive" });
  draw();
  tell();
  explain();
  return () => {
    clearInterval(beat);
    for (const [events, call] of listen) model.off(events, call);
  };
}

export default { render };
