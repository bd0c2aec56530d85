// Draws tokens in a pane: the model's own tokens, accepted runs, and proposed and rejected drafts. How they
// look is in tokens.css.
import { make } from "../lib/dom.js";

const BLANK = "·";
const NEW_LINE = "↵";

// Text that was not drafted: tokens that the model predicted itself.
export function drawOwn(text) {
  return make("span", "own-token", text);
}

// The run of `count` draft tokens that were accepted in one step.
export function drawAccepted(text, count) {
  return make("span", "run", text, `${count} draft ${count > 1 ? "tokens" : "token"} accepted in one step`);
}

// A draft that is not verified yet.
export function drawProposed(text) {
  return make("span", "proposed", showBlanks(text));
}

// The accepted part of a verified draft.
export function drawVerified(text) {
  return make("span", "run", showBlanks(text) || BLANK);
}

export function drawRejected(piece) {
  return make("span", "rejected", showBlanks(piece) || BLANK);
}

// A draft in one row, whose new lines are signs: a blank that is struck out looks like a hyphen.
function showBlanks(text) {
  return text.replaceAll(/\s*\n\s*/g, ` ${NEW_LINE} `).trim();
}
