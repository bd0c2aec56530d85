// One line that says whether the model is there; the server sends {state, text} as a JSON string.
export function showStatus(line, value) {
  if (!value) return;
  const { state, text } = JSON.parse(value);
  line.dataset.state = state;
  line.querySelector("span").textContent = text;
}

// A page without such a line has no model, and waits for none.
export function readStatus() {
  return document.querySelector(".status")?.dataset.state ?? "failed";
}
