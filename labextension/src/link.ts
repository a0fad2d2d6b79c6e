// The link to the kernel of the active notebook: a comm to the extension that `%load_ext kstreams_repl` loaded there.
import type { IComm, IKernelConnection, INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { kernelEvent } from "./kernels";

const TARGET = "kstreams_repl";
const ANSWER_MS = 400; // a responsive kernel has acknowledged by then

export interface Topic {
  name: string;
  partitions: number;
  records: number;
  internal: boolean;
}
export interface Schema {
  name: string;
  columns: string[][];
  note: string;
}
export interface Store {
  name: string;
  kind: string;
  rows: number | null;
  application: string;
}
export interface Application {
  name: string;
  status: string;
  detached: boolean;
  records: number;
  rate: number;
  lag: number | null;
  stale: number;
  error: string;
}
// An application in the session's directory that is not attached in this kernel.
export interface Left {
  name: string;
  status: string;
  standing: string;
  detached: boolean;
  driven: boolean;
  error: string;
}
// What removing an application would delete.
export interface Cleanup {
  name: string;
  rows: string[][];
  note: string;
}
export interface State {
  session: string | null;
  brokers: string[];
  topics: Topic[];
  stores: Store[];
  applications: Application[];
  left?: Left[];
  problem?: string;
}
export type Linked = "no notebook" | "no kernel" | "not loaded" | "connecting" | "connected";

// Follows the active notebook and its kernel; calls `changed` when there is something new to show.
export class KernelLink {
  state: State | null = null;
  linked: Linked = "no notebook";
  message = "";
  cleanup: Cleanup | null = null;
  schema: Schema | null = null;
  private panel: NotebookPanel | null = null;
  private kernel: IKernelConnection | null = null;
  private comm: IComm | null = null;
  private wanted = false;
  private loading = ""; // the message that runs a cell which may load the extension
  private unanswered = 0;

  constructor(tracker: INotebookTracker, private changed: () => void) {
    tracker.currentChanged.connect((_, panel) => this.follow(panel));
    this.follow(tracker.currentWidget);
  }

  // Poll the kernel only while the panel is visible.
  watch(wanted: boolean): void {
    this.wanted = wanted;
    if (wanted && this.comm === null) this.connect();
    else if (wanted) this.send({ do: "list" });
  }

  send(message: unknown): void {
    if (this.comm !== null && !this.comm.isDisposed) this.comm.send(message);
  }

  // Send a button's action. Without subshells the kernel acts when the running cell ends; the message says so.
  act(action: string, name: string, more: object = {}): void {
    this.cleanup = null;
    this.schema = null;
    this.send({ do: action, name, ...more });
    window.clearTimeout(this.unanswered);
    this.unanswered = window.setTimeout(() => {
      this.message = `${action} ${name}: waits for the running cell`;
      this.changed();
    }, ANSWER_MS);
  }

  current(): IKernelConnection | null {
    return this.kernel;
  }

  async load(): Promise<void> {
    await this.kernel?.requestExecute({ code: "%load_ext kstreams_repl", store_history: false }).done;
    this.connect();
  }

  private follow(panel: NotebookPanel | null): void {
    this.panel?.sessionContext.kernelChanged.disconnect(this.onKernel);
    this.panel = panel;
    panel?.sessionContext.kernelChanged.connect(this.onKernel);
    this.onKernel();
  }

  private onKernel = (): void => {
    const kernel = this.panel?.sessionContext.session?.kernel ?? null;
    if (kernel !== this.kernel) {
      this.kernel?.iopubMessage.disconnect(this.onMessage);
      this.kernel?.statusChanged.disconnect(this.onStatus);
      this.kernel = kernel;
      kernel?.iopubMessage.connect(this.onMessage);
      kernel?.statusChanged.connect(this.onStatus);
      this.drop();
    }
    this.set(this.panel === null ? "no notebook" : kernel === null ? "no kernel" : "not loaded");
    if (this.wanted) this.connect();
  };

  // A cell that names the package may have loaded the extension: try to connect when it ends.
  private onMessage = (_: unknown, message: { header: { msg_type: string }; parent_header: { msg_id?: string }; content: any }): void => {
    const cause = message.parent_header.msg_id ?? "";
    if (message.header.msg_type === "execute_input" && /kstreams_repl/.test(message.content.code)) this.loading = cause;
    // other requests end while the cell still runs
    if (message.header.msg_type === "status" && message.content.execution_state === "idle" && cause !== "" && cause === this.loading) {
      this.loading = "";
      if (this.wanted && this.comm === null) this.connect();
    }
  };

  // The kernel sends no message about a restart requested here, and its comms disappear silently.
  private onStatus = (_: unknown, status: string): void => {
    if (!kernelEvent(status)) return;
    this.drop();
    this.set("not loaded");
  };

  private connect(): void {
    if (this.kernel === null || this.kernel.isDisposed || this.comm !== null) return;
    const comm = this.kernel.createComm(TARGET);
    this.comm = comm;
    this.set("connecting");
    comm.onMsg = (message) => {
      const data = message.content.data;
      if (this.comm !== comm) return;
      if (data.heard) {
        window.clearTimeout(this.unanswered);
        this.message = `${data.heard.name}: ${data.heard.do} …`;
      }
      if (data.state) this.state = data.state;
      if (data.schema) {
        this.schema = data.schema;
        this.message = "";
      }
      if (data.cleanup) {
        this.cleanup = data.cleanup;
        this.message = "";
      }
      if (data.error) this.message = `${data.error.do} ${data.error.name}: ${data.error.message}`;
      if (data.done) this.message = `${data.done.name}: ${data.done.do} is done`;
      this.set("connected");
    };
    comm.onClose = () => {
      if (this.comm !== comm) return;
      this.comm = null;
      this.state = null;
      this.set("not loaded");
    };
    comm.open({});
  }

  private drop(): void {
    const comm = this.comm;
    this.comm = null;
    this.state = null;
    this.cleanup = null;
    this.message = "";
    window.clearTimeout(this.unanswered);
    if (comm !== null && !comm.isDisposed) comm.close();
  }

  private set(linked: Linked): void {
    this.linked = linked;
    this.changed();
  }
}
