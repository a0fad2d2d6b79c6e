// A reopened notebook has no widgets: the picture that was saved with a panel is shown instead.
import type { NotebookPanel } from "@jupyterlab/notebook";

const WIDGET = "application/vnd.jupyter.widget-view+json";
const PICTURE = "data:image/svg+xml;base64,";
const LOST = /^(Error displaying widget|Loading widget)/;

// Only the image of the saved HTML is used: an image runs no code, even if the file is not trusted.
function savedPicture(html: unknown): HTMLImageElement | null {
  const text = Array.isArray(html) ? html.join("") : String(html ?? "");
  const found = new DOMParser().parseFromString(text, "text/html").querySelector("img.ks-image");
  if (!found?.getAttribute("src")?.startsWith(PICTURE)) return null;
  const image = document.createElement("img");
  image.src = found.getAttribute("src")!;
  image.alt = found.getAttribute("alt") ?? "";
  image.className = "ks-image";
  image.style.maxWidth = "100%";
  image.style.height = "auto";
  image.style.colorScheme = document.body.dataset.jpThemeLight === "false" ? "dark" : "light";
  return image;
}

// The picture is inserted after the widget's output, which JupyterLab rewrites when it restores widgets ("Loading widget...", then an
// error or the widget): the output is hidden until it contains the widget, which then replaces the picture.
function standIn(output: HTMLElement, image: HTMLImageElement): void {
  const saved = document.createElement("div");
  saved.className = "jp-OutputArea-output ks-saved";
  const note = document.createElement("div");
  note.textContent = "As it was when this notebook was saved; run the cell for the live panel.";
  note.style.color = "var(--jp-ui-font-color2)";
  saved.append(note, image);
  output.after(saved);
  output.style.display = "none";
  const written = new MutationObserver(() => {
    const text = output.textContent ?? "";
    if (LOST.test(text) || (text === "" && output.childElementCount === 0)) return;
    written.disconnect();
    saved.remove();
    output.style.display = "";
  });
  written.observe(output, { childList: true, characterData: true, subtree: true });
}

export function showSavedPictures(panel: NotebookPanel | null): void {
  for (const cell of panel?.content.widgets ?? []) {
    const outputs = cell.model.outputs;
    if (!outputs) continue;
    const children = cell.node.querySelectorAll<HTMLElement>(".jp-OutputArea-child");
    for (let index = 0; index < outputs.length; index++) {
      const data = outputs.get(index).data;
      const output = children[index]?.querySelector<HTMLElement>(".jp-OutputArea-output");
      if (!output || !(WIDGET in data) || !LOST.test(output.textContent ?? "") || children[index].querySelector(".ks-saved")) continue;
      const image = savedPicture(data["text/html"]);
      if (image !== null) standIn(output, image);
    }
  }
}
