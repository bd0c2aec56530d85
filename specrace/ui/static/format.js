// Numbers and tokens in words.
const PIECE_LETTERS = 14;

export function seconds(ms) {
  return `${(ms / 1000).toFixed(2)} s`;
}

// A speedup with one decimal, half up; see times_words in core/metrics.py.
export function times(speedup) {
  return `${(Math.floor(10 * speedup + 0.5) / 10).toFixed(1)}×`;
}

// The speedup by which a lane is placed: what is shown as vanilla's is no faster than vanilla.
export function standing({ speedup }) {
  return times(speedup) === times(1) ? 1 : speedup;
}

// What lane `index`'s speedup rests on: "2.2 to 2.6, 5 runs"; `repeated` is null after one run.
export function describeRange(repeated, index) {
  if (!repeated || !index) return "";
  const [, low, high] = repeated.lanes[index];
  return `${times(low).slice(0, -1)} to ${times(high).slice(0, -1)}, ${countOf(repeated.runs, "run")}`;
}

export function percent(share) {
  return share >= 0.0995
    ? `${(100 * share).toFixed(0)} %`
    : share >= 0.00095
      ? `${(100 * share).toFixed(1)} %`
      : "<0.1 %";
}

export function figure(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

export function countOf(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

// A token as it fits a box: blanks made visible where there is nothing else, long ones cut.
export function shorten(piece, letters = PIECE_LETTERS) {
  const text = piece.trim() ? piece.trim() : piece.includes("\n") ? "↵" : piece ? "␣" : "·";
  const characters = Array.from(text.slice(0, 4 * letters + 4));
  return characters.length > letters ? `${characters.slice(0, letters - 1).join("")}…` : characters.join("");
}

// The model of a race, and where and when it ran.
export function describeRecording(about) {
  const size = about.parameters ? `${(about.parameters / 1e6).toFixed(about.parameters < 1e8 ? 1 : 0)}M` : "";
  const day = about.date ? `recorded ${String(about.date).slice(0, 10)}` : "";
  return [about.model, size, about.dtype, about.device, day].filter(Boolean).join(" · ");
}
