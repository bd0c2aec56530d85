// Finds where the draft tokens of one step come from. `tree.positions` has the position of the token that each was
// copied from: in a passage, elsewhere in the prompt, or in the output. A drafter that copies from no text may leave a
// note on the step; then the rows of the note are shown instead.
/** @import { Step } from "../lib/wire.d.ts" */
/** @import { PlayedReel } from "../stage/reel.js" */
import { visibleText } from "../lib/pieces.js";

// Draft tokens whose positions differ by more than this were copied from different stretches of text.
const MAX_GAP = 6;
// Tokens of context shown on either side.
const CONTEXT = 6;
const MAX_ROWS = 3;
const MAX_WORDS = 5;
const MAX_TITLE = 44;
const FROM_OUTPUT = "the text it has written";
const FROM_PROMPT = "the prompt";
// The sources of drafters that copy from no text, by lane.
const OWN_SOURCES = {
  bigram: "the bigram table",
  trigram: "the trigram table",
  jacobi: "the model's last predictions",
  lookahead: "its n-gram pool",
  recycling: "its table of likely next tokens",
  "draft-model": "a smaller model",
  specinfer: "smaller models",
  rest: "an index of the documents",
};

/**
 * The prompt and the output before step `before`. `textAt` returns the text at a position, `placeAt` says where that
 * is, for instance "passage 2".
 * @param {PlayedReel} reel
 * @param {number} lane
 * @param {number} before
 */
export function readText(reel, lane, before) {
  const origins = reel.started.about.origins ?? [];
  // The offsets in `origins` count characters, not UTF-16 units.
  const passages = reel.head.passages.map(({ title, text }) => ({ title, letters: Array.from(text) }));
  const promptLength = reel.started.prompt_tokens;
  const output = reel.steps
    .filter((step) => step.lane === lane && step.index < before)
    .flatMap(({ event }) => event.emitted.map((_, index) => visibleText(event.texts[index])));
  return {
    output,
    textAt(position) {
      if (position >= promptLength) return output[position - promptLength];
      const [passage, start, end] = origins[position] ?? [];
      return passage === undefined ? undefined : passages[passage]?.letters.slice(start, end).join("");
    },
    placeAt(position) {
      if (!(position >= 0)) return "";
      if (position >= promptLength) return FROM_OUTPUT;
      const origin = origins[position];
      return origin ? namePassage(passages[origin[0]], origin[0]) : FROM_PROMPT;
    },
  };
}

function namePassage(passage, index) {
  const title = Array.from(visibleText(passage?.title));
  const shortTitle = title.length > MAX_TITLE ? `${title.slice(0, MAX_TITLE - 1).join("")}…` : title.join("");
  return shortTitle ? `passage ${index + 1}, “${shortTitle}”` : `passage ${index + 1}`;
}

/**
 * The source of a draft as {name, rows}. A row has `words`, {text, nodes}, where `nodes` are the draft tokens copied
 * from this text. A row from another source has a `name` too.
 * @param {Step} event
 * @param {ReturnType<typeof readText>} text
 * @param {string} lane
 */
export function findSource(event, text, lane) {
  const groups = groupNodes(event, text);
  const noted = rowsFromNotes(event, groups.unplaced);
  if (!groups.clusters.length)
    return {
      name: OWN_SOURCES[lane] ?? "its own table",
      rows: noted.length ? noted : listNodes(event, groups.unplaced),
    };
  const [first, ...others] = groups.clusters;
  const rows = [{ words: excerpt(first, event, text) }];
  const byPlace = new Map();
  for (const { place, nodes } of others)
    byPlace.set(place, [...(byPlace.get(place) ?? []), ...nodes.map(({ node }) => node)]);
  for (const [place, nodes] of byPlace) rows.push({ name: place, words: listNodes(event, nodes)[0].words });
  if (groups.unplaced.length) rows.push({ name: "other counts", words: listNodes(event, groups.unplaced)[0].words });
  const visible = rows.filter(({ words }) => words.some((word) => word.text.trim()));
  return { name: first.place, rows: visible.slice(0, MAX_ROWS) };
}

/**
 * Groups draft tokens by the stretch of text they were copied from: {clusters, unplaced}. The cluster with the most
 * accepted tokens comes first. `unplaced` are the nodes that were copied from no text.
 * @param {Step} event
 * @param {ReturnType<typeof readText>} text
 */
function groupNodes({ tree, verdict }, text) {
  const path = new Set(verdict.path);
  const placed = [];
  const unplaced = [];
  for (let node = 1; node < tree.tokens.length; node++) {
    const position = tree.positions?.[node] ?? -1;
    if (position < 0) unplaced.push(node);
    else placed.push({ node, position, place: text.placeAt(position) });
  }
  placed.sort((a, b) => a.position - b.position || a.node - b.node);
  const clusters = [];
  for (const token of placed) {
    const last = clusters.at(-1);
    if (last?.place === token.place && token.position - last.nodes.at(-1).position <= MAX_GAP) last.nodes.push(token);
    else clusters.push({ place: token.place, nodes: [token] });
  }
  // An accepted token outweighs all tokens that were not accepted.
  const weigh = ({ nodes }) => nodes.length + 1000 * nodes.filter(({ node }) => path.has(node)).length;
  return { clusters: clusters.sort((a, b) => weigh(b) - weigh(a)), unplaced };
}

// The tokens of a stretch and CONTEXT tokens around it, each with the draft tokens copied from it.
function excerpt({ place, nodes }, event, text) {
  const isHere = (position) => text.placeAt(position) === place && text.textAt(position) !== undefined;
  if (!isHere(nodes[0].position))
    return listNodes(
      event,
      nodes.map(({ node }) => node),
    )[0].words;
  let from = nodes[0].position;
  let to = nodes.at(-1).position;
  for (let left = CONTEXT; left && isHere(from - 1); left--) from--;
  // Begin with a whole word.
  while (from < nodes[0].position && isHere(from - 1) && !/^\s/.test(text.textAt(from))) from++;
  for (let left = CONTEXT; left && isHere(to + 1); left--) to++;
  // End with a whole word.
  while (to > nodes.at(-1).position && isHere(to + 1) && !/^\s/.test(text.textAt(to + 1))) to--;
  const words = isHere(from - 1) ? [{ text: "…", nodes: [] }] : [];
  for (let position = from; position <= to; position++) {
    const copies = nodes.filter((token) => token.position === position).map(({ node }) => node);
    words.push({ text: visibleText(text.textAt(position) ?? ""), nodes: copies });
  }
  if (isHere(to + 1)) words.push({ text: " …", nodes: [] });
  return words;
}

/**
 * A list of one row, which has these draft tokens.
 * @param {Step} event
 * @param {number[]} nodes
 */
function listNodes({ pieces }, nodes) {
  return [{ words: nodes.map((node) => ({ text: ` ${visibleText(pieces[node]).trim()}`, nodes: [node] })) }];
}

/**
 * The rows in the drafter's note. A row's token is linked to the first node that has the same token and the same token
 * before it, and that is not linked yet.
 * @param {Step} event
 * @param {number[]} nodes
 */
function rowsFromNotes(event, nodes) {
  const { tokens, parents } = event.tree;
  const unlinked = new Set(nodes);
  // The rows of lookahead's window, its guesses at later positions, come last.
  const rows = [...(event.note?.rows ?? [])].sort(
    (a, b) => Number(a.group === "Window") - Number(b.group === "Window"),
  );
  const shown = [];
  for (const row of rows) {
    const list = row.tokens.slice(0, MAX_WORDS).map((token, index) => {
      // The tokens of a row follow one another or, if they have counts, are alternatives after the same context.
      const before = index && !row.counts.length ? row.tokens[index - 1] : row.after.at(-1);
      // A window's first row begins with the pending token.
      const pending = row.label === "row 0" && !index;
      const node = [...unlinked].find(
        (child) => !pending && tokens[child] === token && (before === undefined || tokens[parents[child]] === before),
      );
      unlinked.delete(node);
      const count = row.counts.length ? ` ${row.counts[index]}×` : "";
      return { text: ` ${visibleText(row.pieces[index]).trim()}${count}`, nodes: node === undefined ? [] : [node] };
    });
    if (!list.some((word) => word.nodes.length)) continue;
    const after = visibleText(row.after_text).trim();
    shown.push({ words: after ? [{ text: `${after} →`, nodes: [] }, ...list] : list });
  }
  return shown.slice(0, MAX_ROWS);
}
