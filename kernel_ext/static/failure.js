// Buttons that Python's markup brings along: `data-cell` goes to a cell, `data-do` says something to the kernel, after a question where
// there is one in `data-ask`. One listener of the place that they stand in hears them all.

export function pressed(event, say) {
  const button = event.target.closest?.("button[data-cell], button[data-do]");
  if (!button || button.disabled) return;
  const { cell, line } = button.dataset;
  if (cell) {
    // the side panel's part of JupyterLab, where it is installed, knows how to show a cell
    document.dispatchEvent(new CustomEvent("kstreams:show-cell", { detail: { cell, line: line === undefined ? undefined : Number(line) } }));
    return;
  }
  const call = () => say({ do: button.dataset.do, at: button.dataset.at });
  if (button.dataset.ask) ask(button, call);
  else call();
}

// The question takes the button's place until it is answered.
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
