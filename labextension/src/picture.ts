// A tab with the live picture of one application: the same front end as the widget's, over a separate comm.
import { Widget } from "@lumino/widgets";
import type { IComm, IKernelConnection } from "@jupyterlab/notebook";
import panel from "../../kstreams_repl/pictures/static/panel.js";
import { kernelEvent, notifyPictures } from "./kernels";

const TARGET = "kstreams_repl.picture";

// The part of an anywidget model that `panel.js` uses.
class CommModel {
  private state: Record<string, unknown> = {};
  private calls = new Map<string, Set<() => void>>();

  constructor(private comm: IComm) {}

  get = (name: string): unknown => this.state[name];

  on = (event: string, call: () => void): void => {
    if (!this.calls.has(event)) this.calls.set(event, new Set());
    this.calls.get(event)!.add(call);
  };

  off = (event: string, call: () => void): void => {
    this.calls.get(event)?.delete(call);
  };

  send = (message: unknown): void => {
    if (!this.comm.isDisposed) this.comm.send(message);
  };

  take(changed: Record<string, unknown>): void {
    Object.assign(this.state, changed);
    const calls = new Set<() => void>();
    for (const name of Object.keys(changed)) for (const call of this.calls.get(`change:${name}`) ?? []) calls.add(call);
    for (const call of calls) call();
  }
}

export class PictureTab extends Widget {
  private comm: IComm;
  private end: (() => void) | null = null;

  constructor(private kernel: IKernelConnection, name: string) {
    super();
    this.addClass("ks-picture-tab");
    this.comm = kernel.createComm(TARGET);
    const model = new CommModel(this.comm);
    this.comm.onMsg = (message) => {
      const data = message.content.data;
      if (data.error) this.node.textContent = data.error.message;
      if (!data.set) return;
      model.take(data.set);
      if (this.end === null) this.end = panel.render({ model, el: this.node });
    };
    this.comm.onClose = () => notifyPictures(this.node, "ended");
    kernel.statusChanged.connect(this.onStatus);
    kernel.connectionStatusChanged.connect(this.onConnection);
    this.comm.open({ name });
  }

  // Whether it is open and its kernel has not been restarted.
  get live(): boolean {
    return !this.isDisposed && !this.comm.isDisposed;
  }

  private onStatus = (_: unknown, status: string): void => {
    const how = kernelEvent(status);
    if (how) notifyPictures(this.node, how);
  };

  private onConnection = (_: unknown, status: string): void => {
    notifyPictures(this.node, status === "connected" ? "connected" : "disconnected");
  };

  dispose(): void {
    if (this.isDisposed) return;
    this.kernel.statusChanged.disconnect(this.onStatus);
    this.kernel.connectionStatusChanged.disconnect(this.onConnection);
    this.end?.();
    if (!this.comm.isDisposed) this.comm.close();
    super.dispose();
  }
}
