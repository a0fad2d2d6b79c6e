// The side panel: lists, and buttons for applications. Everything from the kernel is inserted as text, never as markup.
import { Widget } from "@lumino/widgets";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { Application, KernelLink, Left } from "./link";

const ASK_MS = 2000;
const ACTIONS: Record<string, string[]> = {
  pause: ["running"],
  resume: ["paused", "stopped", "failed"],
  stop: ["running", "paused", "failed"],
};
const REMOVABLE = ["stopped", "failed"];
const SIGNS: Record<string, string> = { running: "▶", starting: "…", paused: "‖", failed: "✖", stopped: "■", created: "○" };
const NOTICES = {
  "no notebook": "Open a notebook: this panel shows the applications of its kernel.",
  "no kernel": "The notebook has no kernel yet.",
  "not loaded": "kstreams_repl is not loaded in this notebook.",
  connecting: "Connecting to the kernel …",
  connected: "",
};

function make<K extends keyof HTMLElementTagNameMap>(tag: K, parent: Node, className = "", text = ""): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  parent.appendChild(made);
  return made;
}

export class SidePanel extends Widget {
  readonly link: KernelLink;
  private timer = 0;
  private shown = "";
  private internal = false;

  constructor(tracker: INotebookTracker, private openPicture: (name: string) => void) {
    super();
    this.addClass("ks-side");
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", "Kafka Streams topologies");
    this.link = new KernelLink(tracker, () => this.draw());
  }

  protected onAfterShow(message: unknown): void {
    super.onAfterShow(message);
    this.link.watch(true);
    this.timer = window.setInterval(() => this.link.send({ do: "list" }), ASK_MS);
    this.draw();
  }

  protected onBeforeHide(message: unknown): void {
    super.onBeforeHide(message);
    window.clearInterval(this.timer);
    this.link.watch(false);
  }

  private draw(): void {
    if (this.link === undefined || !this.isVisible) return;
    const now = JSON.stringify([this.link.linked, this.link.state, this.link.message, this.link.cleanup, this.internal, this.link.schema]);
    if (now === this.shown) return;
    this.shown = now;
    const focused = this.node.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset.key : undefined;
    this.node.replaceChildren();
    this.fill();
    if (focused) this.node.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  private fill(): void {
    const { linked, state, message } = this.link;
    if (linked !== "connected" || state === null) {
      make("p", this.node, "ks-notice", NOTICES[linked]);
      if (linked === "not loaded") this.button(this.node, "load", "Load it", "Run %load_ext kstreams_repl", () => void this.link.load());
      return;
    }
    make("p", this.node, "ks-notice", state.session ?? "No session in this notebook yet: session = kstreams_repl.connect()");
    const notice = make("p", this.node, "ks-message", message || state.problem || "");
    notice.setAttribute("role", "status");
    const left = state.left ?? [];
    const applications = this.section("Applications", state.applications.length + left.length);
    for (const app of state.applications) this.application(applications, app);
    for (const app of left) this.leftApplication(applications, app);
    this.rows("Brokers", ["address"], state.brokers.map((address) => [address]));
    const topics = state.topics.filter((topic) => this.internal || !topic.internal);
    const element = this.rows(
      "Topics", ["topic", "partitions", "records"],
      topics.map((topic) => [topic.name, topic.partitions, topic.records]),
    );
    element.querySelectorAll("tbody tr").forEach((line, index) => this.topic(line as HTMLElement, topics[index].name));
    this.button(element, "internal", this.internal ? "hide internal topics" : "show internal topics", "", () => {
      this.internal = !this.internal;
      this.draw();
    });
    const stores = this.rows("Stores", ["store", "rows"], state.stores.map((store) => [store.name, store.rows ?? "–"]));
    stores.querySelectorAll("tbody tr").forEach((line, index) => {
      const store = state.stores[index];
      make("div", line.firstChild!, "ks-numbers", `${store.kind}, of ${store.application}`);
    });
  }

  // A topic's name opens and closes its columns.
  private topic(line: HTMLElement, name: string): void {
    const element = line.firstChild as HTMLElement;
    element.textContent = "";
    const schema = this.link.schema?.name === name ? this.link.schema : null;
    const button = this.button(element, `${name}/schema`, name, `Columns of ${name}, their types and an example`, () => {
      if (schema === null) this.link.act("schema", name);
      else this.link.schema = null;
      this.draw();
    });
    button.className = "ks-topic";
    button.setAttribute("aria-expanded", String(schema !== null));
    if (schema === null) return;
    const opened = document.createElement("tr");
    opened.className = "ks-schema";
    line.after(opened);
    const cell = make("td", opened);
    cell.colSpan = 3;
    for (const [column, type, example] of schema.columns) {
      const row = make("div", cell, "ks-column");
      make("span", row, "ks-column-name", column);
      make("span", row, "ks-column-type", type);
      make("span", row, "ks-column-example", example).title = example;
    }
    make("div", cell, "ks-numbers", schema.note);
  }

  private application(parent: HTMLElement, app: Application): void {
    const row = this.row(parent, app.name, app.status, app.detached);
    const lag = app.lag === null ? "lag unknown" : `lag ${app.lag.toLocaleString("en")}`;
    const stale = app.stale ? ` · ✎ ${app.stale} changed` : "";
    make("div", row, "ks-numbers", `${app.records.toLocaleString("en")} records · ${app.rate.toLocaleString("en")}/s · ${lag}${stale}`);
    if (app.error) make("div", row, "ks-error", app.error);
    const bar = make("div", row, "ks-bar");
    for (const [action, states] of Object.entries(ACTIONS)) {
      const button = this.button(bar, `${app.name}/${action}`, action, `${action} ${app.name}`, () =>
        this.link.act(action, app.name),
      );
      button.disabled = !states.includes(app.status);
    }
    this.button(bar, `${app.name}/picture`, "picture", `Open the picture of ${app.name}`, () => this.openPicture(app.name));
    if (REMOVABLE.includes(app.status)) this.removal(row, bar, app.name);
  }

  // An application that an earlier or another kernel left in the directory.
  private leftApplication(parent: HTMLElement, app: Left): void {
    const row = this.row(parent, app.name, app.status, app.detached);
    row.classList.add("is-left");
    make("div", row, "ks-numbers", app.standing);
    if (app.error) make("div", row, "ks-error", app.error);
    const bar = make("div", row, "ks-bar");
    this.button(bar, `${app.name}/attach`, "attach", `session.attach(${JSON.stringify(app.name)}): attach it to this kernel`, () =>
      this.link.act("attach", app.name),
    );
    if (!app.driven) this.removal(row, bar, app.name);
  }

  // "remove" lists what it would delete; the deletion needs a second click.
  private removal(row: HTMLElement, bar: HTMLElement, name: string): void {
    this.button(bar, `${name}/remove`, "remove …", `List what removing ${name} would delete`, () => this.link.act("remove", name));
    const found = this.link.cleanup;
    if (found?.name !== name) return;
    const list = make("div", row, "ks-cleanup");
    list.setAttribute("role", "alertdialog");
    list.setAttribute("aria-label", `Remove ${name}`);
    if (found.rows.length === 0) {
      make("div", list, "ks-numbers", found.note);
      return;
    }
    make("div", list, "ks-numbers", `This permanently deletes ${found.rows.length === 1 ? "one item" : `${found.rows.length} items`}:`);
    const items = make("ul", list);
    for (const line of found.rows) make("li", items, "", line.join(" "));
    this.button(list, `${name}/delete`, `delete`, `Delete what belongs to ${name}`, () => this.link.act("remove", name, { confirm: true }));
    this.button(list, `${name}/keep`, "keep", "", () => {
      this.link.cleanup = null;
      this.draw();
    });
  }

  private row(parent: HTMLElement, name: string, status: string, detached: boolean): HTMLElement {
    const row = make("div", parent, `ks-app is-${status in SIGNS ? status : "other"}`);
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", `${name}, ${status}${detached ? ", detached" : ""}`);
    const head = make("div", row, "ks-app-head");
    make("span", head, "ks-app-name", name);
    make("span", head, "ks-badge", `${SIGNS[status] ?? "?"} ${status}`);
    if (detached) {
      const badge = make("span", head, "ks-badge ks-detached", "⇱ detached");
      badge.title = "It runs in its own driver process and continues when this kernel ends";
    }
    return row;
  }

  private section(title: string, count: number): HTMLElement {
    const section = make("section", this.node);
    const heading = make("h3", section, "", `${title} `);
    make("span", heading, "ks-count", String(count));
    section.setAttribute("aria-label", title);
    return section;
  }

  private rows(title: string, columns: string[], rows: (string | number)[][]): HTMLElement {
    const section = this.section(title, rows.length);
    if (rows.length === 0) return section;
    const table = make("table", section);
    const head = make("tr", make("thead", table));
    for (const column of columns) make("th", head, "", column).scope = "col";
    const body = make("tbody", table);
    for (const row of rows) {
      const line = make("tr", body);
      for (const value of row) {
        const element = make("td", line, typeof value === "number" ? "ks-number" : "", typeof value === "number" ? value.toLocaleString("en") : value);
        if (typeof value === "string") element.title = value;
      }
    }
    return section;
  }

  private button(parent: HTMLElement, key: string, text: string, title: string, call: () => void): HTMLButtonElement {
    const button = make("button", parent, "", text);
    button.type = "button";
    button.dataset.key = key;
    if (title) button.title = title;
    button.addEventListener("click", call);
    return button;
  }
}
