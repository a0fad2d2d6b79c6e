// The buttons below an error output: markup of `kernel_ext/failures.py`, handled here over a separate comm to the kernel of their
// notebook. JupyterLab removes their attributes in an untrusted notebook, so there they stay hidden.
import type { IKernelConnection, INotebookTracker } from "@jupyterlab/notebook";
import { pressed } from "../../kstreams_repl/pictures/static/failure.js";

const TARGET = "kstreams_repl";
const ANSWER_MS = 400; // a responsive kernel has acknowledged by then

export function handleFailureButtons(tracker: INotebookTracker): void {
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
  const answer = answerElement(box);
  if (kernels.length === 0) {
    answer.textContent = "The notebook has no kernel.";
    return;
  }
  const comm = kernels[0].createComm(TARGET);
  const waits = window.setTimeout(() => (answer.textContent = `${message.do}: waits for the running cell`), ANSWER_MS);
  const end = (): void => {
    window.clearTimeout(waits);
    comm.onClose = () => undefined; // our own close must not be reported
    if (!comm.isDisposed) comm.close();
  };
  comm.onMsg = ({ content: { data } }) => {
    if (data.heard) {
      window.clearTimeout(waits);
      answer.textContent = `${message.do} …`;
      return;
    }
    if (data.error) answer.textContent = data.error.message;
    else if (data.done) answer.textContent = `${name} continues without ${message.at}.`;
    else if (data.record) show(answer, data.record.columns);
    else return;
    end();
  };
  comm.onClose = () => {
    window.clearTimeout(waits);
    answer.textContent = `This kernel does not know ${name}: session.attach(${JSON.stringify(name)}) attaches it.`;
  };
  comm.open({});
  comm.send({ ...message, name });
}

function answerElement(box: HTMLElement): HTMLElement {
  const found = box.querySelector<HTMLElement>(".ks-answer");
  if (found) return found;
  const made = document.createElement("div");
  made.className = "ks-answer";
  made.setAttribute("role", "status");
  box.append(made);
  return made;
}

// Everything is inserted as text.
function show(answer: HTMLElement, columns: string[][]): void {
  answer.replaceChildren();
  for (const [name, value] of columns) {
    const row = document.createElement("div");
    const label = document.createElement("b");
    label.textContent = `${name} `;
    row.append(label, value);
    answer.append(row);
  }
}
