/* The theme's search listens to keys only: text that is pasted with the mouse, dictated, or set by a script found nothing. */
"use strict";
document.addEventListener("input", ({ target }) => {
  if (target.matches(".md-search__input")) target.dispatchEvent(new KeyboardEvent("keyup"));
});

/* It looks for every word as a beginning of words, so "how do I ... a ..." finds every page: it is given the other words only. */
const QUESTION = /(?<!\S)(?:an?|and|are|by|can|do|does|for|from|how|i|in|is|it|its|my|of|on|or|per|that|the|to|was|what|when|where|which|why|with)\s+/gi;
const typed = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
for (const box of document.querySelectorAll(".md-search__input")) {
  Object.defineProperty(box, "value", { ...typed, get() { return typed.get.call(this).replace(QUESTION, ""); } });
}
