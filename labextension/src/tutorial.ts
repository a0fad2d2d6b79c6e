// "Kafka Streams tutorial" in the launcher: a kernel copies the notebook of the installed package into the open folder, unless it is there.
import { showErrorMessage, type ICommandPalette } from "@jupyterlab/apputils";
import type { ILauncher as Launcher } from "@jupyterlab/launcher";
import type { IKernelConnection } from "@jupyterlab/notebook";

const COMMAND = "kstreams-repl:tutorial";
const FOLDER = "kstreams-tutorial";
const COPY = `from pathlib import Path\nfrom kstreams_repl.cli.tutorial import copy_tutorial\ncopy_tutorial(Path("${FOLDER}"))`;

interface Reply {
  readonly content: { readonly status: string; readonly ename?: string; readonly evalue?: string };
}

export interface TutorialApp {
  readonly commands: {
    addCommand(id: string, options: { label: string; caption?: string; icon?: unknown; execute: (args: { cwd?: string }) => unknown }): void;
    execute(id: string, args: { path: string }): Promise<unknown>;
  };
  resolveOptionalService<T>(token: unknown): Promise<T | null>;
  readonly serviceManager: {
    readonly kernels: { startNew(options: { path: string }): Promise<IKernelConnection & { shutdown(): Promise<void> }> };
  };
}

async function open(app: TutorialApp, folder: string): Promise<void> {
  const kernel = await app.serviceManager.kernels.startNew({ path: folder });
  try {
    const { content } = (await kernel.requestExecute({ code: COPY, store_history: false }).done) as Reply;
    if (content.status !== "ok") throw new Error(`${content.ename}: ${content.evalue}`);
  } finally {
    await kernel.shutdown();
  }
  await app.commands.execute("docmanager:open", { path: `${folder ? `${folder}/` : ""}${FOLDER}/tutorial.ipynb` });
}

export async function offerTutorial(app: TutorialApp, icon: unknown, palette: ICommandPalette | null): Promise<void> {
  app.commands.addCommand(COMMAND, {
    label: "Kafka Streams tutorial",
    caption: "45 minutes, nine steps: from nothing to a running application",
    icon,
    execute: ({ cwd }) => open(app, cwd ?? "").catch((error) => showErrorMessage("The tutorial cannot be opened", error)),
  });
  palette?.addItem({ command: COMMAND, category: "Kafka Streams" });
  const found = await import("@jupyterlab/launcher").catch(() => null); // only now: an application without it still has the side panel
  const launcher = found && (await app.resolveOptionalService<Launcher>(found.ILauncher));
  launcher?.add({ command: COMMAND, category: "Kafka Streams" });
}
