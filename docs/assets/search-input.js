/* The theme's search listens to keys only: text that is pasted with the mouse, dictated, or set by a script found nothing. */
"use strict";
document.addEventListener("input", ({ target }) => {
  if (target.matches(".md-search__input")) target.dispatchEvent(new KeyboardEvent("keyup"));
});
