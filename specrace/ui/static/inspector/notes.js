// Tables of tokens: the drafter's note on a step, and how the step's draft tokens were verified.
/** @import { Check, NoteRow, Step } from "../lib/wire.d.ts" */
import { make, table } from "../lib/dom.js";
import { shorten } from "../lib/format.js";
import { nodeKinds } from "./tree.js";

// The largest numbers of steps and of positions in a table of drafts by position.
const TRAJECTORY_STEPS = 8;
const TRAJECTORY_POSITIONS = 12;
// What is said below the rows of a group.
export const GROUP_WORDS = {
  Sources: "Where each draft token comes from: the longest context that it followed before, or another source.",
  Window:
    "Each column starts at its trunk token in row 0, the oldest; each row below is one step newer and one position later.",
  Pool: "N-grams collected after the pending token; the accepted one is marked.",
  "Rows of the table": "The most frequent tokens after the context, with their counts; the model's choice is marked.",
};

// A token in a box in the style of its `kind`, with the text `small` behind it.
export function chip(piece, kind, small, title) {
  const node = make("span", `chip ${kind}`, shorten(piece, 20), title ?? JSON.stringify(piece.slice(0, 200)));
  if (small) node.append(make("small", "", small));
  return node;
}

// Whether rejection sampling accepts a draft token, `stays`, and the probability of that, `limit`: min(1, p/q). `coin`
// is the random number from 0 to 1 that decides.
/** @param {Check} check */
export function judgeCheck({ p, q, coin }) {
  return { stays: coin * q < p, limit: Math.min(1, q ? p / q : 1) };
}

// A table of how rejection sampling verified each draft token up to the first rejected one; for a tree, each token that
// was tried.
/** @param {Step} event */
export function drawChecks(event) {
  const rows = event.checks.map((check, index) => {
    const { stays, limit } = judgeCheck(check);
    const verdict = stays ? `coin below ${limit.toFixed(3)}: accepted` : `coin not below ${limit.toFixed(3)}: rejected`;
    const figures = [check.p, check.q, limit, check.coin].map((figure) => figure.toFixed(3));
    // In a chain, without `checked_nodes`, the first check is of node 1, and so on.
    const node = event.checked_nodes?.[index] ?? index + 1;
    return [chip(event.pieces[node] ?? "", stays ? "accepted" : "rejected"), ...figures, verdict];
  });
  return table(["draft token", "p, model", "q, drafter", "min(1, p/q)", "coin", ""], rows, "coins");
}

/**
 * How many of a row's first tokens are on the accepted path; 0 unless the row follows the pending token.
 * @param {Step} event
 * @param {NoteRow} row
 */
export function countFollowed(event, row) {
  const { path } = event.verdict;
  const { tokens } = event.tree;
  if (row.counts.length || row.after.length !== 1 || row.after[0] !== tokens[0]) return 0;
  let length = 0;
  while (length < row.tokens.length && length + 1 < path.length && tokens[path[length + 1]] === row.tokens[length])
    length++;
  return length;
}

/**
 * A table of rows of a drafter's note. Marks the tokens of a row that were accepted, or the one that the model
 * predicted.
 * @param {Step} event
 * @param {NoteRow[]} rows
 */
export function drawNoteRows(event, rows) {
  const isChain = event.tree.parents.every((parent, node) => parent === node - 1);
  const hasAfter = rows.some((row) => row.after_text);
  const width = Math.max(...rows.map((row) => row.tokens.length));
  const lines = rows.map((row, number) => {
    const accepted = countFollowed(event, row);
    // In a chain, row i has the counts of what followed node i before; the model's token there is marked.
    const predicted =
      isChain && row.counts.length && event.verdict.path.includes(number)
        ? event.verdict.scores.targets[number]
        : undefined;
    const chips = row.tokens.map((token, index) => {
      const piece = row.pieces[index] ?? `#${token}`;
      const count = row.counts.length ? `${row.counts[index]}×` : "";
      const chosen = token === predicted;
      return chip(
        piece,
        index < accepted || chosen ? "accepted" : "",
        count,
        chosen ? "the model's token here" : undefined,
      );
    });
    const empty = Array.from({ length: width - chips.length }, () => "");
    return [
      row.label,
      ...(hasAfter ? [make("b", "after", `${shorten(row.after_text, 24)} →`)] : []),
      ...chips,
      ...empty,
    ];
  });
  return table(["", ...(hasAfter ? ["after"] : []), ...Array(width).fill("")], lines, "note-rows");
}

/**
 * A table of the drafts of several steps by position in the answer; a column is final once its token is accepted.
 * @param {{ event: Step, tokensBefore: number }[]} steps
 * @param {number} index
 */
export function drawTrajectory(steps, index) {
  const recent = steps.slice(Math.max(0, index - TRAJECTORY_STEPS + 1), index + 1);
  const shown = recent.filter((step) => step.tokensBefore > steps[index].tokensBefore - TRAJECTORY_POSITIONS);
  const first = shown[0].tokensBefore;
  const lines = shown.map(({ event, tokensBefore }) => {
    const kinds = nodeKinds(event);
    /** @type {(string | HTMLElement)[]} */
    const cells = Array.from({ length: tokensBefore - first }, () => "");
    for (let node = 1; node < event.pieces.length; node++) cells.push(chip(event.pieces[node], kinds[node]));
    return [`step ${event.index + 1}`, ...cells];
  });
  const width = Math.max(...lines.map((line) => line.length));
  const padded = lines.map((line) => [...line, ...Array(width - line.length).fill("")]);
  const names = Array.from({ length: width - 1 }, (_, offset) => String(first + offset));
  return table(["position in the answer", ...names], padded, "note-rows trajectory");
}
