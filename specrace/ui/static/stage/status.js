// The line that says whether the model is loaded, and the lanes that the model refuses. The server sends a status as a
// JSON string.
/** @import { Status } from "../lib/wire.d.ts" */
import { greyRefused } from "../lib/gradio.js";

export function showStatus(line, value) {
  if (!value) return;
  /** @type {Status} */
  const { state, text, refused, reason } = JSON.parse(value);
  line.dataset.state = state;
  line.querySelector("span").textContent = line.title = text;
  greyRefused(refused, reason);
}

// The state; "failed" on a page without the line, which has no model and waits for none.
export function readStatus() {
  return document.querySelector(".status")?.getAttribute("data-state") ?? "failed";
}
