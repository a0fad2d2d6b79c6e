// Notifies pictures of the state of their kernel at once: by themselves they would notice its silence only, not the reason.
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

export type KernelEvent = "restarted" | "ended" | "disconnected" | "connected";

const STATUS: Record<string, KernelEvent> = { restarting: "restarted", autorestarting: "restarted", dead: "ended", terminating: "ended" };

export function kernelEvent(status: string): KernelEvent | undefined {
  return STATUS[status];
}

// `panel.js` and `tail.js` listen on their root elements.
export function notifyPictures(container: HTMLElement, how: KernelEvent): void {
  for (const root of container.querySelectorAll(".ks-panel, .ks-tail")) root.dispatchEvent(new CustomEvent("kstreams:kernel", { detail: { how } }));
}

export function followKernels(tracker: INotebookTracker): void {
  const follow = (panel: NotebookPanel): void => {
    const context = panel.sessionContext;
    context.statusChanged.connect((_, status) => {
      const how = kernelEvent(status);
      if (how) notifyPictures(panel.node, how);
    });
    context.connectionStatusChanged.connect((_, status) => notifyPictures(panel.node, status === "connected" ? "connected" : "disconnected"));
    context.kernelChanged.connect((_, change) => {
      if (change.oldValue !== null) notifyPictures(panel.node, "ended");
    });
  };
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, panel) => follow(panel));
}
