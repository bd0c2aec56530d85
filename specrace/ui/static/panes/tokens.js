// Draws tokens in a pane: the model's own tokens, accepted runs, and proposed and rejected drafts. How they
// look is in tokens.css.
import { make } from "../lib/dom.js";

const BLANK = "·";
const NEW_LINE = "↵";
// The blank before a citation mark such as "[2]", whose number may still come.
const BEFORE_MARK = /([ \t]+)(?=\[(?:\d|$))/;
// Blanks that must not collapse: several in a row, tabs, and those that indent a line.
const SPACING = /( {2,}|[ ]*\t[ \t]*|(?<=\n)[ \t]+)/;

// Text that was not drafted: tokens that the model predicted itself.
export function drawOwn(text) {
  return keepMarks(make("span", "own-token"), text);
}

// The run of `count` draft tokens that were accepted in one step.
export function drawAccepted(text, count) {
  const run = make("span", "run", "", `${count} draft ${count > 1 ? "tokens" : "token"} accepted in one step`);
  return keepMarks(run, text, keepSpacing);
}

/**
 * Splits a tinted text into nodes. The style sheet lets its blanks collapse, because a blank at a line's end would be
 * tinted although no word follows it. Blanks that must not collapse get elements of their own.
 * @param {string} text
 */
export function keepSpacing(text) {
  return text.split(SPACING).map((part, index) => (index % 2 ? make("span", "spacing", part) : part));
}

// Writes a text into `node` so that no line begins with a citation mark: no line breaks at the blanks before marks,
// which are every second part. `draw` returns the other parts' nodes.
function keepMarks(node, text, draw = (part) => [part]) {
  const parts = text.split(BEFORE_MARK);
  node.append(...parts.flatMap((part, index) => (index % 2 ? [make("span", "kept", part)] : draw(part))));
  return node;
}

/**
 * If a text begins with a citation mark, keeps it on one line with the word before it.
 * @param {Node | null} before the node that the text follows
 * @param {string} text
 */
export function keepTogether(before, text) {
  const last = before?.lastChild;
  if (!(last instanceof Text) || !/^\[(?:\d|$)/.test(text)) return;
  const words = last.data.replace(/[ \t]+$/, "");
  if (words.length === last.length) return;
  const blank = last.splitText(words.length);
  blank.replaceWith(make("span", "kept", blank.data));
}

// A draft that is not verified yet; `pieces` are the tokens' texts.
export function drawProposed(pieces) {
  return drawPieces("proposed", pieces);
}

// The accepted part of a verified draft.
export function drawVerified(pieces) {
  return drawPieces("run", pieces);
}

// A box with an element for each token, of which `fitPieces` hides those that have no room.
function drawPieces(kind, pieces) {
  const box = make("span", kind);
  const last = pieces.length - 1;
  const texts = pieces.map((piece, index) => {
    const text = piece.replaceAll(/\s*\n\s*/g, ` ${NEW_LINE} `);
    const start = index ? text : text.trimStart();
    return index < last ? start : start.trimEnd();
  });
  if (texts.join("").trim()) box.append(...texts.map((text) => make("span", "piece", text)));
  else box.append(BLANK);
  return box;
}

/**
 * Hides a box's last tokens, as many as have no room in it, and returns their number; the first one always stays.
 * @param {Element} box
 */
export function fitPieces(box) {
  const pieces = /** @type {HTMLElement[]} */ ([...box.querySelectorAll(".piece")]);
  for (const piece of pieces) piece.hidden = false;
  if (box.scrollWidth <= box.clientWidth) return 0;
  const { paddingLeft, paddingRight } = getComputedStyle(box);
  const room = box.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  const [first] = pieces.map((piece) => piece.getBoundingClientRect().left);
  const hidden = pieces.filter((piece, index) => index && piece.getBoundingClientRect().right - first > room);
  for (const piece of hidden) piece.hidden = true;
  return hidden.length;
}

export function drawRejected(piece) {
  return make("span", "rejected", showBlanks(piece) || BLANK);
}

// A text for the draft's row: line breaks become signs, and outer blanks are cut, because a struck-out blank looks like
// a hyphen.
function showBlanks(text) {
  return text.replaceAll(/\s*\n\s*/g, ` ${NEW_LINE} `).trim();
}
