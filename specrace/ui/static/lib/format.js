// Formats numbers and tokens for the page.
/** @import { RaceCard, RaceHead, ResultRow, ShownRepeated } from "./wire.d.ts" */
const MAX_PIECE_CHARACTERS = 14;

export function formatSeconds(ms) {
  return `${(ms / 1000).toFixed(2)} s`;
}

// A lane's own time: below a tenth of a second in milliseconds, because hundredths of a second would hide differences.
export function formatTime(ms) {
  return ms < 99.95 ? `${ms.toFixed(1)} ms` : formatSeconds(ms);
}

// A speedup with one decimal, rounded half up, like format_speedup in core/metrics.py.
export function formatSpeedup(speedup) {
  return `${rankingSpeedup({ speedup }).toFixed(1)}×`;
}

// The speedup by which lanes are ranked: rounded as it is shown, so that hidden decimals decide no place.
/** @param {Pick<ResultRow, "speedup">} row */
export function rankingSpeedup({ speedup }) {
  return Math.floor(10 * speedup + 0.5) / 10;
}

/**
 * The range of lane `index`'s speedup over several runs: "2.2 to 2.6, 5 runs". Empty for vanilla (lane 0), if all runs
 * show the same speedup, and after one run (`repeated` is null).
 * @param {ShownRepeated | null} repeated
 * @param {number} index
 */
export function describeRange(repeated, index) {
  if (!repeated || !index) return "";
  // A lane's entry is [median, minimum, maximum].
  const [low, high] = repeated.lanes[index].slice(1).map((speedup) => formatSpeedup(speedup).slice(0, -1));
  return low === high ? "" : `${low} to ${high}, ${countOf(repeated.runs, "run")}`;
}

// Which clocks the lanes are timed by.
/** @param {{ lane: string, served?: { together?: boolean } | null }[]} lanes */
export function describeClocks(lanes) {
  const servers = lanes.filter(({ served }) => served).map(({ lane }) => lane);
  const together = lanes.some(({ served }) => served?.together) ? ", all at once" : "";
  return servers.length
    ? `race time, but not for servers: ${servers.join(", ")} measured as the client saw it${together}`
    : "race time: lanes take turns";
}

// A share in percent: whole percents from 10 %, tenths below that.
export function formatPercent(share) {
  if (share >= 0.0995) return `${(100 * share).toFixed(0)} %`;
  return share >= 0.00095 ? `${(100 * share).toFixed(1)} %` : "<0.1 %";
}

// A number with three digits, or, from 100 on, as a whole number.
export function formatFigure(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

// A number and its noun: "1 token", "2 tokens".
export function countOf(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

// A token's text for a small box. A long text is cut, and a blank one becomes a visible sign.
export function shorten(piece, maxCharacters = MAX_PIECE_CHARACTERS) {
  const blank = piece ? "␣" : "·";
  const text = piece.trim() || (piece.includes("\n") ? "↵" : blank);
  // A character has one or two code units, so this bound keeps a long text cheap and never decides what is shown.
  const characters = Array.from(text.slice(0, 4 * maxCharacters + 4));
  return characters.length > maxCharacters
    ? `${characters.slice(0, maxCharacters - 1).join("")}…`
    : characters.join("");
}

// The model of a race, and where and when it ran.
/** @param {Pick<RaceCard, "model" | "parameters" | "dtype" | "device" | "date">} about */
export function describeRecording(about) {
  return Object.values(recordingParts(about)).filter(Boolean).join(" · ");
}

// The three parts of `describeRecording`: the model, how it ran, and when.
/** @param {Pick<RaceCard, "model" | "parameters" | "dtype" | "device" | "date">} about */
export function recordingParts(about) {
  const size = about.parameters ? `${(about.parameters / 1e6).toFixed(about.parameters < 1e8 ? 1 : 0)}M` : "";
  const day = about.date ? `recorded ${String(about.date).slice(0, 10)}` : "";
  const join = (...words) => words.filter(Boolean).join(" · ");
  return { model: join(about.model, size), how: join(about.dtype, about.device), day };
}

// A sentence to append to `describeRecording`: how forwards run (`engine`), and how long reading the prompt took.
/** @param {RaceHead} head */
export function describePrompt({ engine, prompt_tokens: tokens, prefill_ms: ms, lanes }) {
  const lanesWithPrefill = lanes.filter((lane) => lane.prefill_ms);
  const prefills = lanesWithPrefill
    .map(({ title, served, prefill_ms }) =>
      served ? ` ${title}: first token after ${prefill_ms} ms.` : ` ${title}: its model read it in ${prefill_ms} ms.`,
    )
    .join("");
  return `${engine ? ` · ${engine}` : ""}. Prompt: ${tokens} tokens, read in ${ms} ms, once for all lanes.${prefills}`;
}
