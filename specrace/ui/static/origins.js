// Where the draft tokens of one step come from, as the recording has it: words of a passage, of the output or of the
// prompt by the tree's positions, or the drafter's own rows where it copies from no text.
import { readPiece } from "./pieces.js";

// Positions that lie further apart are two places.
const GAP = 6;
const AROUND = 6;
const MAX_ROWS = 3;
const MAX_WORDS = 5;
const MAX_TITLE = 44;
const FROM_OUTPUT = "the text it has written";
const FROM_PROMPT = "the prompt";
const OWN_SOURCES = {
  bigram: "the bigram table",
  trigram: "the trigram table",
  jacobi: "the model's last predictions",
  lookahead: "its n-gram pool",
  recycling: "its table of likely next tokens",
  "draft-model": "a smaller model",
  rest: "an index of the documents",
};

// What is known of every position in prompt and output: `textAt` and `placeAt`.
export function readText(reel, lane, before) {
  const origins = reel.started.about.origins ?? [];
  const passages = reel.head.passages.map(({ title, text }) => ({ title, letters: Array.from(text) }));
  const prompt = reel.started.prompt_tokens;
  const output = reel.steps
    .filter((step) => step.lane === lane && step.index < before)
    .flatMap(({ event }) => event.emitted.map((_, index) => readPiece(event.texts[index])));
  return {
    output,
    textAt(position) {
      if (position >= prompt) return output[position - prompt];
      const [passage, start, end] = origins[position] ?? [];
      return passage === undefined ? undefined : passages[passage]?.letters.slice(start, end).join("");
    },
    placeAt(position) {
      if (!(position >= 0)) return "";
      if (position >= prompt) return FROM_OUTPUT;
      const origin = origins[position];
      return origin ? namePassage(passages[origin[0]], origin[0]) : FROM_PROMPT;
    },
  };
}

function namePassage(passage, index) {
  const title = Array.from(readPiece(passage?.title));
  const words = title.length > MAX_TITLE ? `${title.slice(0, MAX_TITLE - 1).join("")}…` : title.join("");
  return words ? `passage ${index + 1}, “${words}”` : `passage ${index + 1}`;
}

// {name, rows}: a row has words, {text, node} where a draft token was taken from, and its name where it has another.
export function findSource(event, text, lane) {
  const groups = groupNodes(event, text);
  const own = drawnFromNotes(event, groups.unplaced);
  if (!groups.clusters.length)
    return {
      name: OWN_SOURCES[lane] ?? "its own table",
      copied: false,
      rows: own.length ? own : listNodes(event, groups.unplaced),
    };
  const [first, ...others] = groups.clusters;
  const rows = [{ words: excerpt(first, event, text) }];
  const rest = new Map();
  for (const { place, nodes } of others)
    rest.set(place, [...(rest.get(place) ?? []), ...nodes.map(({ node }) => node)]);
  for (const [place, nodes] of rest) rows.push({ name: place, words: listNodes(event, nodes)[0].words });
  if (groups.unplaced.length) rows.push({ name: "other counts", words: listNodes(event, groups.unplaced)[0].words });
  const seen = rows.filter(({ words }) => words.some((word) => word.text.trim()));
  return { name: first.place, rows: seen.slice(0, MAX_ROWS) };
}

// Draft tokens that were taken from one stretch of text stand together; the stretch with most of the path comes first.
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
  for (const each of placed) {
    const last = clusters.at(-1);
    if (last?.place === each.place && each.position - last.nodes.at(-1).position <= GAP) last.nodes.push(each);
    else clusters.push({ place: each.place, nodes: [each] });
  }
  const weigh = ({ nodes }) => nodes.length + 1000 * nodes.filter(({ node }) => path.has(node)).length;
  return { clusters: clusters.sort((a, b) => weigh(b) - weigh(a)), unplaced };
}

function excerpt({ place, nodes }, event, text) {
  const known = (position) => text.placeAt(position) === place && text.textAt(position) !== undefined;
  if (!known(nodes[0].position))
    return listNodes(
      event,
      nodes.map(({ node }) => node),
    )[0].words;
  let from = nodes[0].position;
  let to = nodes.at(-1).position;
  for (let left = AROUND; left && known(from - 1); left--) from--;
  // It begins with a whole word.
  while (from < nodes[0].position && known(from - 1) && !/^\s/.test(text.textAt(from))) from++;
  for (let left = AROUND; left && known(to + 1); left--) to++;
  const words = [];
  for (let position = from; position <= to; position++) {
    const taken = nodes.filter((each) => each.position === position).map(({ node }) => node);
    words.push({ text: readPiece(text.textAt(position) ?? ""), nodes: taken });
  }
  return words;
}

function listNodes({ pieces }, nodes) {
  return [{ words: nodes.map((node) => ({ text: ` ${readPiece(pieces[node]).trim()}`, nodes: [node] })) }];
}

// The rows that the drafter noted: a token of a row feeds the first node that has it after the same token.
function drawnFromNotes(event, nodes) {
  const { tokens, parents } = event.tree;
  const free = new Set(nodes);
  const rows = [...(event.note?.rows ?? [])].sort((a, b) => (a.group === "Window") - (b.group === "Window"));
  const found = [];
  for (const row of rows) {
    const list = row.tokens.slice(0, MAX_WORDS).map((token, index) => {
      const before = index && !row.counts.length ? row.tokens[index - 1] : row.after.at(-1);
      // A window's first row begins with the pending token.
      const pending = row.label === "row 0" && !index;
      const node = [...free].find(
        (each) => !pending && tokens[each] === token && (before === undefined || tokens[parents[each]] === before),
      );
      free.delete(node);
      const count = row.counts.length ? ` ${row.counts[index]}×` : "";
      return { text: ` ${readPiece(row.pieces[index]).trim()}${count}`, nodes: node === undefined ? [] : [node] };
    });
    if (!list.some((word) => word.nodes.length)) continue;
    const after = readPiece(row.after_text).trim();
    found.push({ words: after ? [{ text: `${after} →`, nodes: [] }, ...list] : list });
  }
  return found.slice(0, MAX_ROWS);
}
