// The line that says whether the model is loaded. The server sends {state, text} as a JSON string.
/** @import { Status } from "../lib/wire.d.ts" */
import { make } from "../lib/dom.js";

// The parts of a ready server's line: that it is ready; the model; its number format and device, which a phone leaves
// out; and the rest.
const READY = /^(Ready: )(.+?)(, \w+, [\w:]+)(, [\d,]+ passages?.*)$/s;

export function showStatus(line, value) {
  if (!value) return;
  /** @type {Status} */
  const { state, text } = JSON.parse(value);
  line.dataset.state = state;
  line.title = text;
  const [, ready, model, how, rest] = READY.exec(text) ?? [];
  const words = ready
    ? [make("span", "ready", ready), make("span", "model", model), make("span", "how", how), rest]
    : [text];
  line.querySelector("span").replaceChildren(...words);
}

// The state; "failed" on a page without the line, which has no model and waits for none.
export function readStatus() {
  return document.querySelector(".status")?.getAttribute("data-state") ?? "failed";
}
