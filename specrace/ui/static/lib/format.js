// Formats numbers and tokens for the page.
/** @import { RaceCard, RaceHead, ResultRow, ShownRepeated } from "./wire.d.ts" */
const PIECE_LETTERS = 14;

export function seconds(ms) {
  return `${(ms / 1000).toFixed(2)} s`;
}

// A speedup with one decimal, rounded half up, like format_speedup in core/metrics.py.
export function times(speedup) {
  return `${(Math.floor(10 * speedup + 0.5) / 10).toFixed(1)}×`;
}

// The speedup by which lanes are ranked. A speedup that is shown as 1.0× counts as 1, like vanilla's.
/** @param {Pick<ResultRow, "speedup">} row */
export function rankingSpeedup({ speedup }) {
  return times(speedup) === times(1) ? 1 : speedup;
}

/**
 * The range of lane `index`'s speedup over several runs: "2.2 to 2.6, 5 runs"; `repeated` is null after one run.
 * @param {ShownRepeated | null} repeated
 * @param {number} index
 */
export function describeRange(repeated, index) {
  if (!repeated || !index) return "";
  const [, low, high] = repeated.lanes[index];
  return `${times(low).slice(0, -1)} to ${times(high).slice(0, -1)}, ${countOf(repeated.runs, "run")}`;
}

// A share in percent: whole percents from 10 % on, tenths below.
export function percent(share) {
  if (share >= 0.0995) return `${(100 * share).toFixed(0)} %`;
  return share >= 0.00095 ? `${(100 * share).toFixed(1)} %` : "<0.1 %";
}

export function figure(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

export function countOf(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

// A token's text for a small box. Long text is cut, and blanks are shown as a sign.
export function shorten(piece, letters = PIECE_LETTERS) {
  const blank = piece ? "␣" : "·";
  const text = piece.trim() || (piece.includes("\n") ? "↵" : blank);
  const characters = Array.from(text.slice(0, 4 * letters + 4));
  return characters.length > letters ? `${characters.slice(0, letters - 1).join("")}…` : characters.join("");
}

// The model of a race, and where and when it ran.
/** @param {Pick<RaceCard, "model" | "parameters" | "dtype" | "device" | "date">} about */
export function describeRecording(about) {
  const size = about.parameters ? `${(about.parameters / 1e6).toFixed(about.parameters < 1e8 ? 1 : 0)}M` : "";
  const day = about.date ? `recorded ${String(about.date).slice(0, 10)}` : "";
  return [about.model, size, about.dtype, about.device, day].filter(Boolean).join(" · ");
}

// What a race's model ran on, and how long it took to read the prompt: goes on after `describeRecording`.
/** @param {RaceHead} head */
export function describePrompt({ engine, prompt_tokens: tokens, prefill_ms: ms, lanes }) {
  const read = lanes.filter((lane) => lane.prefill_ms);
  const own = read.map((lane) => ` ${lane.title}: its model read it in ${lane.prefill_ms} ms.`).join("");
  return `${engine ? ` · ${engine}` : ""}. Prompt: ${tokens} tokens, read in ${ms} ms, once for all lanes.${own}`;
}
