// The line that says whether the model is loaded. The server sends {state, text} as a JSON string.
/** @import { Status } from "../lib/wire.d.ts" */
export function showStatus(line, value) {
  if (!value) return;
  /** @type {Status} */
  const { state, text } = JSON.parse(value);
  line.dataset.state = state;
  line.querySelector("span").textContent = line.title = text;
}

// The state; "failed" on a page without the line, which has no model and waits for none.
export function readStatus() {
  return document.querySelector(".status")?.getAttribute("data-state") ?? "failed";
}
