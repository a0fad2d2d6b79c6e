// A notebook that is opened again has no widgets: where a panel stood, the picture that was saved with it is shown.
import type { NotebookPanel } from "@jupyterlab/notebook";

const WIDGET = "application/vnd.jupyter.widget-view+json";
const PICTURE = "data:image/svg+xml;base64,";
const LOST = /^(Error displaying widget|Loading widget)/;

// Only the image is taken of the saved HTML: nothing in an image runs, whoever wrote the file.
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

// The picture stands next to the widget's own place, which JupyterLab writes again when its widgets are restored ("Loading widget...",
// then an error, or the widget after all): what is written there is hidden as long as it is no widget, and the picture goes when it is.
function standIn(place: HTMLElement, image: HTMLImageElement): void {
  const saved = document.createElement("div");
  saved.className = "jp-OutputArea-output ks-saved";
  const note = document.createElement("div");
  note.textContent = "As it was when this notebook was saved; run the cell for the live panel.";
  note.style.color = "var(--jp-ui-font-color2)";
  saved.append(note, image);
  place.after(saved);
  place.style.display = "none";
  const written = new MutationObserver(() => {
    const text = place.textContent ?? "";
    if (LOST.test(text) || (text === "" && place.childElementCount === 0)) return;
    written.disconnect();
    saved.remove();
    place.style.display = "";
  });
  written.observe(place, { childList: true, characterData: true, subtree: true });
}

export function showSavedPictures(panel: NotebookPanel | null): void {
  for (const cell of panel?.content.widgets ?? []) {
    const outputs = cell.model.outputs;
    if (!outputs) continue;
    const places = cell.node.querySelectorAll<HTMLElement>(".jp-OutputArea-child");
    for (let index = 0; index < outputs.length; index++) {
      const data = outputs.get(index).data;
      const place = places[index]?.querySelector<HTMLElement>(".jp-OutputArea-output");
      if (!place || !(WIDGET in data) || !LOST.test(place.textContent ?? "") || places[index].querySelector(".ks-saved")) continue;
      const image = savedPicture(data["text/html"]);
      if (image !== null) standIn(place, image);
    }
  }
}
