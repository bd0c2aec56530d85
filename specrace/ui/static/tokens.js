// How tokens are drawn in a pane: the model's own, accepted runs, proposed and rejected drafts. Colours: stage.css.
import { make } from "./dom.js";

const BLANK = "·";

// A token of the model's own.
export function drawOwn(text) {
  return make("span", "own-token", text);
}

// The run of `count` draft tokens that one step accepted.
export function drawAccepted(text, count) {
  return make("span", "run", text, `${count} draft ${count > 1 ? "tokens" : "token"} accepted in one step`);
}

// A draft that the model verifies next.
export function drawProposed(text) {
  return make("span", "proposed", text.trim());
}

// Of a draft that was verified, the accepted part.
export function drawVerified(text) {
  return make("span", "run", text.trim() || BLANK);
}

export function drawRejected(piece) {
  return make("span", "rejected", piece.trim() || BLANK);
}
