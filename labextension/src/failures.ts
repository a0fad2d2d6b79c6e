// The buttons below a red box: markup of `kernel_ext/failures.py` in an output, heard here, over a comm of their own to the kernel of
// the notebook that they stand in. In a notebook that is not trusted they lack what they would act on, and stay hidden.
import type { IKernelConnection, INotebookTracker } from "@jupyterlab/notebook";
import { pressed } from "../../kernel_ext/static/failure.js";

const TARGET = "kstreams_repl";
const ANSWER_MS = 400; // a kernel that listens has said that it heard by then

export function hearRedBoxes(tracker: INotebookTracker): void {
  document.addEventListener("click", (event) => {
    const box = (event.target as Element).closest?.<HTMLElement>(".ks-ways[data-application]");
    if (box) pressed(event, (message) => act(tracker, box, message));
  });
}

function act(tracker: INotebookTracker, box: HTMLElement, message: { do: string; at: string }): void {
  const kernels: IKernelConnection[] = [];
  tracker.forEach(({ node, sessionContext: { session } }) => {
    if (node.contains(box) && session?.kernel) kernels.push(session.kernel);
  });
  const name = box.dataset.application!;
  const place = placeOf(box);
  if (kernels.length === 0) {
    place.textContent = "The notebook has no kernel.";
    return;
  }
  const comm = kernels[0].createComm(TARGET);
  const waits = window.setTimeout(() => (place.textContent = `${message.do}: waits for the running cell`), ANSWER_MS);
  const end = (): void => {
    window.clearTimeout(waits);
    comm.onClose = () => undefined; // closing it here is told here, too
    if (!comm.isDisposed) comm.close();
  };
  comm.onMsg = ({ content: { data } }) => {
    if (data.heard) {
      window.clearTimeout(waits);
      place.textContent = `${message.do} …`;
      return;
    }
    if (data.error) place.textContent = data.error.message;
    else if (data.done) place.textContent = `${name} goes on without ${message.at}.`;
    else if (data.record) show(place, data.record.columns);
    else return;
    end();
  };
  comm.onClose = () => {
    window.clearTimeout(waits);
    place.textContent = `This kernel does not know ${name}: session.attach(${JSON.stringify(name)}) takes it up.`;
  };
  comm.open({});
  comm.send({ ...message, name });
}

function placeOf(box: HTMLElement): HTMLElement {
  const found = box.querySelector<HTMLElement>(".ks-answer");
  if (found) return found;
  const made = document.createElement("div");
  made.className = "ks-answer";
  made.setAttribute("role", "status");
  box.append(made);
  return made;
}

// All of it goes in as text.
function show(place: HTMLElement, columns: string[][]): void {
  place.replaceChildren();
  for (const [name, value] of columns) {
    const row = document.createElement("div");
    const label = document.createElement("b");
    label.textContent = `${name} `;
    row.append(label, value);
    place.append(row);
  }
}
