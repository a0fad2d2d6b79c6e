// Buttons in Python's markup: `data-cell` goes to a cell, `data-do` sends an action to the kernel, after the question in `data-ask` if
// there is one. One listener of their container handles all of them.

export function pressed(event, send) {
  const button = event.target.closest?.("button[data-cell], button[data-do]");
  if (!button || button.disabled) return;
  const { cell, line } = button.dataset;
  if (cell) {
    // handled by the JupyterLab extension, if it is installed
    document.dispatchEvent(new CustomEvent("kstreams:show-cell", { detail: { cell, line: line === undefined ? undefined : Number(line) } }));
    return;
  }
  const call = () => send({ do: button.dataset.do, at: button.dataset.at });
  if (button.dataset.ask) ask(button, call);
  else call();
}

// The question replaces the button until it is answered.
function ask(button, call) {
  const question = document.createElement("span");
  question.className = "ks-question";
  question.setAttribute("role", "alertdialog");
  question.setAttribute("aria-label", button.textContent);
  question.append(`${button.dataset.ask} `);
  const answer = (text, then) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", (event) => {
      event.stopPropagation();
      button.hidden = false;
      question.remove();
      button.focus();
      then();
    });
    question.append(made, " ");
    return made;
  };
  answer("yes", call);
  const no = answer("no", () => {});
  question.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    no.click();
  });
  button.hidden = true;
  button.after(question);
  no.focus();
}
