// A notebook that is opened again has no widgets: where a panel stood, the picture that was saved with it is shown.
import type { NotebookPanel } from "@jupyterlab/notebook";

const WIDGET = "application/vnd.jupyter.widget-view+json";
const PICTURE = "data:image/svg+xml;base64,";

// Only the image is taken of the saved HTML: nothing in an image runs, whoever wrote the file.
function savedPicture(html: unknown): HTMLImageElement | null {
  const text = Array.isArray(html) ? html.join("") : String(html ?? "");
  const found = new DOMParser().parseFromString(text, "text/html").querySelector("img.ks-image");
  if (!found?.getAttribute("src")?.startsWith(PICTURE)) return null;
  const image = document.createElement("img");
  image.src = found.getAttribute("src")!;
  image.alt = found.getAttribute("alt") ?? "";
  image.style.maxWidth = "100%";
  return image;
}

export function showSavedPictures(panel: NotebookPanel | null): void {
  for (const cell of panel?.content.widgets ?? []) {
    const outputs = cell.model.outputs;
    if (!outputs) continue;
    const places = cell.node.querySelectorAll<HTMLElement>(".jp-OutputArea-child");
    for (let index = 0; index < outputs.length; index++) {
      const data = outputs.get(index).data;
      const place = places[index]?.querySelector<HTMLElement>(".jp-OutputArea-output");
      if (!place || !(WIDGET in data) || !/^(Error displaying widget|Loading widget)/.test(place.textContent ?? "")) continue;
      const image = savedPicture(data["text/html"]);
      if (image === null) continue;
      const note = document.createElement("div");
      note.textContent = "As it was when this notebook was saved; run the cell for the live panel.";
      note.style.color = "var(--jp-ui-font-color2)";
      place.replaceChildren(note, image);
    }
  }
}
