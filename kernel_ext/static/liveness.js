// Whether the kernel behind a picture is there. It says `beat` twice a second while somebody looks; a front end that hears nothing shows
// numbers of the past and buttons that do nothing, and must say so. What is known for certain comes sooner: the widget manager's
// `comm_live_update`, and the event `kstreams:kernel` of JupyterLab's part ("restarted", "ended", "disconnected").

const TICK_MS = 250;
const ALIVE_MS = 4000; // we say that we are there
const SILENT_MS = 1600; // and want to have heard the kernel since
const LATE_MS = 1000; // a message that was on its way when the kernel ended is no sign of life

// `changed(lost)`: "" while the kernel is there, else "restarted", "ended" or "silent"; `since` says when it was heard last.
export function watchKernel({ model, root, alive, changed }) {
  let heard = 0;
  let lost = "";
  let lostAt = 0;
  let ticked = performance.now();
  let said = ticked;
  const kernel = { lost: "", since: new Date() };

  const set = (how) => {
    if (how === lost) return;
    lost = kernel.lost = how;
    lostAt = performance.now();
    changed(kernel);
  };
  const beat = () => {
    const now = performance.now();
    if (lost && lost !== "silent" && now - lostAt < LATE_MS) return;
    heard = now;
    kernel.since = new Date();
    set("");
  };
  const commGone = () => set("restarted");
  const told = (event) => {
    const how = event.detail?.how;
    if (how === "connected") alive();
    else if (how === "disconnected") set("silent");
    else if (how === "restarted" || how === "ended") set(how);
  };
  const timer = setInterval(() => {
    const now = performance.now();
    // a page in the background is woken seldom: what it did not hear meanwhile may be waiting
    if (now - ticked > 4 * TICK_MS && heard) heard = now;
    ticked = now;
    if (now - said >= ALIVE_MS) {
      said = now;
      alive();
    }
    if (heard && !lost && now - heard > SILENT_MS) set("silent");
  }, TICK_MS);

  model.on("change:beat", beat);
  model.on("comm_live_update", commGone);
  root.addEventListener("kstreams:kernel", told);
  alive();
  return {
    kernel,
    stop: () => {
      clearInterval(timer);
      model.off("change:beat", beat);
      model.off("comm_live_update", commGone);
      root.removeEventListener("kstreams:kernel", told);
    },
  };
}

// What happened, what became of the application, and what to do.
export function lostText(kernel, name, detached) {
  const attach = `session.attach(${JSON.stringify(name)})`;
  const since = kernel.since.toLocaleTimeString("en-GB");
  if (kernel.lost === "silent") {
    return `No word from the kernel since ${since}: it hangs, has ended, or is not connected. This is the last picture. If the kernel was ended, ${
      detached ? `${name} goes on in a process of its own` : `${name} stopped with it at its last commit`
    }: connect a session again and run ${attach}.`;
  }
  const what = `The kernel ${kernel.lost === "ended" ? "has ended" : "was restarted"} (last word at ${since}). This is the last picture.`;
  return detached
    ? `${what} The application ${name} goes on in a process of its own; connect a session again and run ${attach} to see and control it.`
    : `${what} The application ${name} stopped with the kernel at its last commit; state and offsets are kept. ` +
        `Connect a session again and run ${attach}, then resume() goes on from there.`;
}
