// Tells pictures what became of their kernel, at once: they would notice by themselves that they hear nothing, but not why.
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

export type Fate = "restarted" | "ended" | "disconnected" | "connected";

const STATUS: Record<string, Fate> = { restarting: "restarted", autorestarting: "restarted", dead: "ended", terminating: "ended" };

export function fateOf(status: string): Fate | undefined {
  return STATUS[status];
}

// `panel.js` and `tail.js` listen at their own elements.
export function tellPictures(place: HTMLElement, how: Fate): void {
  for (const root of place.querySelectorAll(".ks-panel, .ks-tail")) root.dispatchEvent(new CustomEvent("kstreams:kernel", { detail: { how } }));
}

export function followKernels(tracker: INotebookTracker): void {
  const follow = (panel: NotebookPanel): void => {
    const context = panel.sessionContext;
    context.statusChanged.connect((_, status) => {
      const how = fateOf(status);
      if (how) tellPictures(panel.node, how);
    });
    context.connectionStatusChanged.connect((_, status) => tellPictures(panel.node, status === "connected" ? "connected" : "disconnected"));
    context.kernelChanged.connect((_, change) => {
      if (change.oldValue !== null) tellPictures(panel.node, "ended");
    });
  };
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, panel) => follow(panel));
}
