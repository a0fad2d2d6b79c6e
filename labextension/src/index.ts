// The JupyterLab extension of kstreams_repl: the side panel, tabs with live pictures, "go to cell", and the tutorial in the launcher.
import { ICommandPalette, MainAreaWidget } from "@jupyterlab/apputils";
import { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { LabIcon } from "@jupyterlab/ui-components";
import type { Widget } from "@lumino/widgets";
import { followKernels } from "./kernels";
import { handleFailureButtons } from "./failures";
import { PictureTab } from "./picture";
import { showSavedPictures } from "./saved";
import { SidePanel } from "./side";
import { offerTutorial, type TutorialApp } from "./tutorial";

const SAVED_MS = 1000;

interface App extends TutorialApp {
  readonly shell: { add(widget: Widget, area: string, options?: { rank?: number }): void; activateById(id: string): void };
}

// JupyterLab's theme fills an element of its class that has a fill: the lines have none of their own
const icon = new LabIcon({
  name: "kstreams-repl:topology",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24" fill="none"><g class="jp-icon3" stroke="#616161" stroke-width="2">' +
    '<rect x="8" y="2.5" width="8" height="5" rx="2.5"/><rect x="2.5" y="16.5" width="7" height="5"/><rect x="14.5" y="16.5" width="7" height="5"/>' +
    '<path d="M12 7.500v4.500M6 16.500V12h12v4.500"/></g></svg>',
});

function showCell(app: App, tracker: INotebookTracker, id: string, line?: number): void {
  const panels: NotebookPanel[] = [];
  if (tracker.currentWidget) panels.push(tracker.currentWidget);
  tracker.forEach((panel) => panels.push(panel));
  for (const panel of panels) {
    const index = panel.content.widgets.findIndex((cell) => cell.model.id === id);
    if (index < 0) continue;
    const cell = panel.content.widgets[index];
    app.shell.activateById(panel.id);
    panel.content.activeCellIndex = index;
    void panel.content.scrollToCell(cell).then(() => {
      panel.content.mode = "edit";
      if (line) cell.editor?.setCursorPosition({ line: line - 1, column: 0 });
      cell.editor?.focus();
    });
    return;
  }
}

const plugin = {
  id: "kstreams-repl:plugin",
  description: "Brokers, topics, stores and applications of kstreams_repl.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ICommandPalette],
  activate: (app: App, tracker: INotebookTracker, palette: ICommandPalette | null): void => {
    let pictures = 0;
    const open = new Map<string, { tab: MainAreaWidget; picture: PictureTab }>();
    const side: SidePanel = new SidePanel(tracker, (name) => {
      const kernel = side.link.current();
      if (kernel === null) return;
      const opened = open.get(`${kernel.id} ${name}`);
      if (opened?.picture.live) {
        app.shell.activateById(opened.tab.id);
        return;
      }
      const picture = new PictureTab(kernel, name);
      const tab = new MainAreaWidget({ content: picture });
      tab.id = `kstreams-picture-${++pictures}`;
      tab.title.label = name;
      tab.title.caption = `Topology of ${name}`;
      tab.title.icon = icon;
      tab.title.closable = true;
      open.set(`${kernel.id} ${name}`, { tab, picture });
      app.shell.add(tab, "main");
      if (tab.parent === null) app.shell.add(tab, "right"); // Notebook 7 has one document in its main area and takes no second
      app.shell.activateById(tab.id);
    });
    side.id = "kstreams-side-panel";
    side.title.icon = icon;
    side.title.caption = "Kafka Streams topologies";
    app.shell.add(side, "left", { rank: 700 });
    followKernels(tracker);
    handleFailureButtons(tracker);
    document.body.dataset.kstreamsCells = "true";
    document.addEventListener("kstreams:show-cell", (event) => {
      const { cell, line } = (event as CustomEvent).detail ?? {};
      showCell(app, tracker, String(cell ?? ""), Number(line) || undefined);
    });
    window.setInterval(() => showSavedPictures(tracker.currentWidget), SAVED_MS);
    const command = "kstreams-repl:show";
    app.commands.addCommand(command, { label: "Show Kafka Streams Topologies", execute: () => app.shell.activateById(side.id) });
    palette?.addItem({ command, category: "Kafka Streams" });
    void offerTutorial(app, icon, palette);
  },
};

export default plugin;
