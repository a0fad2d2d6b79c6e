// Detects whether the kernel of a picture is alive. The kernel sends `beat` twice a second while a front end is open; a front end that
// receives none shows old numbers and dead buttons, and must inform the user. Certain news arrives earlier: the widget manager's
// `comm_live_update`, and the event `kstreams:kernel` of the JupyterLab extension ("restarted", "ended", "disconnected").

const TICK_MS = 250;
const ALIVE_MS = 4000; // interval of our own heartbeat
const SILENT_MS = 1600; // the kernel counts as silent after that
const LATE_MS = 1000; // ignore messages that were in flight when the kernel ended

// `changed(kernel)`: `lost` is "" while the kernel is alive, else "restarted", "ended" or "silent"; `since` is the time of its last message.
export function watchKernel({ model, root, alive, changed }) {
  let lastBeat = 0;
  let lost = "";
  let lostAt = 0;
  let ticked = performance.now();
  let announced = ticked;
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
    lastBeat = now;
    kernel.since = new Date();
    set("");
  };
  const commGone = () => set("restarted");
  const onKernel = (event) => {
    const how = event.detail?.how;
    if (how === "connected") alive();
    else if (how === "disconnected") set("silent");
    else if (how === "restarted" || how === "ended") set(how);
  };
  const timer = setInterval(() => {
    const now = performance.now();
    // timers of a background page run rarely: beats may be waiting in its queue
    if (now - ticked > 4 * TICK_MS && lastBeat) lastBeat = now;
    ticked = now;
    if (now - announced >= ALIVE_MS) {
      announced = now;
      alive();
    }
    if (lastBeat && !lost && now - lastBeat > SILENT_MS) set("silent");
  }, TICK_MS);

  model.on("change:beat", beat);
  model.on("comm_live_update", commGone);
  root.addEventListener("kstreams:kernel", onKernel);
  alive();
  return {
    kernel,
    stop: () => {
      clearInterval(timer);
      model.off("change:beat", beat);
      model.off("comm_live_update", commGone);
      root.removeEventListener("kstreams:kernel", onKernel);
    },
  };
}

// Return what happened, the state of the application, and what to do.
export function lostText(kernel, name, detached, source) {
  const attach = `session.attach(${JSON.stringify(name)})`;
  const since = kernel.since.toLocaleTimeString("en-GB");
  if (source !== "kernel") return `No message from the ${source} since ${since}: it has ended or cannot be reached. This is the last picture.`;
  if (kernel.lost === "silent") {
    return `No message from the kernel since ${since}: it hangs, has ended, or is not connected. This is the last picture. If the kernel has ended, ${
      detached ? `${name} continues in its own process` : `${name} stopped with it at its last commit`
    }: connect a session again and run ${attach}.`;
  }
  const what = `The kernel ${kernel.lost === "ended" ? "has ended" : "was restarted"} (last message at ${since}). This is the last picture.`;
  return detached
    ? `${what} The application ${name} continues in its own process; connect a session again and run ${attach} to see and control it.`
    : `${what} The application ${name} stopped with the kernel at its last commit; state and offsets remain. ` +
        `Connect a session again and run ${attach}, then resume() continues from there.`;
}
