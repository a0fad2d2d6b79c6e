// The part of JupyterLab's interfaces (4.3 and newer) that is used here. JupyterLab brings the modules themselves at run time.

declare module "@lumino/widgets" {
  export class Widget {
    constructor(options?: { node?: HTMLElement });
    readonly node: HTMLElement;
    readonly parent: Widget | null;
    id: string;
    readonly title: { label: string; caption: string; icon: unknown; closable: boolean };
    readonly isVisible: boolean;
    readonly isDisposed: boolean;
    addClass(name: string): void;
    dispose(): void;
    protected onAfterShow(message: unknown): void;
    protected onBeforeHide(message: unknown): void;
  }
}

declare module "@jupyterlab/ui-components" {
  export class LabIcon {
    constructor(options: { name: string; svgstr: string });
  }
}

declare module "@jupyterlab/apputils" {
  import { Widget } from "@lumino/widgets";
  export class MainAreaWidget extends Widget {
    constructor(options: { content: Widget });
  }
  export interface ICommandPalette {
    addItem(item: { command: string; category: string }): void;
  }
  export const ICommandPalette: unique symbol;
  export function showErrorMessage(title: string, error: unknown): Promise<void>;
}

declare module "@jupyterlab/launcher" {
  export interface ILauncher {
    add(item: { command: string; category: string }): void;
  }
  export const ILauncher: unique symbol;
}

declare module "@jupyterlab/notebook" {
  import { Widget } from "@lumino/widgets";
  export interface ISignal<T, U> {
    connect(slot: (sender: T, args: U) => void): boolean;
    disconnect(slot: (sender: T, args: U) => void): boolean;
  }
  export interface IComm {
    readonly isDisposed: boolean;
    onMsg: (message: { content: { data: any } }) => void;
    onClose: (message: unknown) => void;
    open(data?: unknown): unknown;
    send(data: unknown): unknown;
    close(): unknown;
  }
  export interface IKernelConnection {
    readonly id: string;
    readonly isDisposed: boolean;
    readonly statusChanged: ISignal<IKernelConnection, string>;
    readonly connectionStatusChanged: ISignal<IKernelConnection, string>;
    readonly iopubMessage: ISignal<IKernelConnection, { header: { msg_type: string }; parent_header: { msg_id?: string }; content: any }>;
    createComm(target: string): IComm;
    requestExecute(content: { code: string; store_history: boolean }): { done: Promise<unknown> };
  }
  export interface ISessionContext {
    readonly session: { readonly kernel: IKernelConnection | null } | null;
    readonly kernelChanged: ISignal<ISessionContext, { oldValue: unknown; newValue: unknown }>;
    readonly statusChanged: ISignal<ISessionContext, string>;
    readonly connectionStatusChanged: ISignal<ISessionContext, string>;
  }
  export interface ICell {
    readonly model: {
      readonly id: string;
      readonly outputs?: { readonly length: number; get(index: number): { readonly data: Record<string, unknown> } };
    };
    readonly node: HTMLElement;
    readonly editor: { focus(): void; setCursorPosition(position: { line: number; column: number }): void } | null;
  }
  export class NotebookPanel extends Widget {
    readonly sessionContext: ISessionContext;
    readonly content: {
      readonly widgets: readonly ICell[];
      activeCellIndex: number;
      mode: "command" | "edit";
      scrollToCell(cell: ICell): Promise<void>;
    };
  }
  export interface INotebookTracker {
    readonly currentWidget: NotebookPanel | null;
    readonly currentChanged: ISignal<INotebookTracker, NotebookPanel | null>;
    readonly widgetAdded: ISignal<INotebookTracker, NotebookPanel>;
    forEach(call: (panel: NotebookPanel) => void): void;
  }
  export const INotebookTracker: unique symbol;
}

declare module "*/kstreams_repl/pictures/static/failure.js" {
  export function pressed(event: Event, say: (message: { do: string; at: string }) => void): void;
}

declare module "*/kstreams_repl/pictures/static/panel.js" {
  export interface Model {
    get(name: string): unknown;
    on(events: string, call: () => void): void;
    off(events: string, call: () => void): void;
    send(message: unknown): void;
  }
  const panel: { render(context: { model: Model; el: HTMLElement }): () => void };
  export default panel;
}
