// The link to the kernel of the notebook in front: a comm to the extension that `%load_ext kstreams_repl` loaded there.
import type { IComm, IKernelConnection, INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

const TARGET = "kstreams_repl";
const ANSWER_MS = 400; // a kernel that listens has said that it heard by then

export interface Topic {
  name: string;
  partitions: number;
  records: number;
  internal: boolean;
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
export interface Apart {
  name: string;
  status: string;
}
export interface State {
  session: string | null;
  brokers: string[];
  topics: Topic[];
  stores: Store[];
  applications: Application[];
  apart?: Apart[];
  problem?: string;
}
export type Linked = "no notebook" | "no kernel" | "not loaded" | "connecting" | "connected";

// Follows the notebook in front and its kernel; tells `changed` whenever there is something else to show.
export class KernelLink {
  state: State | null = null;
  linked: Linked = "no notebook";
  message = "";
  private panel: NotebookPanel | null = null;
  private kernel: IKernelConnection | null = null;
  private comm: IComm | null = null;
  private wanted = false;
  private loading = false;
  private unanswered = 0;

  constructor(tracker: INotebookTracker, private changed: () => void) {
    tracker.currentChanged.connect((_, panel) => this.follow(panel));
    this.follow(tracker.currentWidget);
  }

  // Whether somebody looks: only then is anything asked.
  watch(wanted: boolean): void {
    this.wanted = wanted;
    if (wanted && this.comm === null) this.connect();
    else if (wanted) this.send({ do: "list" });
  }

  send(message: unknown): void {
    if (this.comm !== null && !this.comm.isDisposed) this.comm.send(message);
  }

  // What a button says. Where the kernel hears one message after the other it acts when the running cell ends; the user is told.
  act(action: string, name: string): void {
    this.send({ do: action, name });
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
      this.kernel = kernel;
      kernel?.iopubMessage.connect(this.onMessage);
      this.drop();
    }
    this.set(this.panel === null ? "no notebook" : kernel === null ? "no kernel" : "not loaded");
    if (this.wanted) this.connect();
  };

  // A cell that names the package may have loaded the extension: look when it is done.
  private onMessage = (_: unknown, message: { header: { msg_type: string }; content: any }): void => {
    if (message.header.msg_type === "execute_input" && /kstreams_repl/.test(message.content.code)) this.loading = true;
    if (message.header.msg_type === "status" && message.content.execution_state === "idle" && this.loading) {
      this.loading = false;
      if (this.wanted && this.comm === null) this.connect();
    }
    if (message.header.msg_type === "status" && /restarting|dead/.test(message.content.execution_state)) {
      this.drop();
      this.set("not loaded");
    }
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
    this.message = "";
    window.clearTimeout(this.unanswered);
    if (comm !== null && !comm.isDisposed) comm.close();
  }

  private set(linked: Linked): void {
    this.linked = linked;
    this.changed();
  }
}
