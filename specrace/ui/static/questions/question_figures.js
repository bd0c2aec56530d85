// The figures of a list's races: of each lane in one race, and over all questions.
/** @import { Reel } from "../lib/wire.d.ts" */
import { countOf } from "../lib/format.js";
import { hasTokens } from "../lib/lanes.js";

/**
 * A lane's figures in a race. `identical`: whether it printed vanilla's text; null if that is not compared.
 * `compared`: the words of its badge. `speedup` is 0 in a server's lane, because its time is not race time; a figure
 * that the server did not report is 0, too. `has_tokens`: the lane has token ids.
 * @typedef {{
 *   lane: string, title: string, speedup: number, tau: number, tokens_per_s: number, identical: boolean | null,
 *   compared: string, first_token_ms: number, tokens: number, steps: number, drafted: number, accepted: number,
 *   loops: boolean, measured: boolean, has_tokens: boolean, num_draft: number,
 * }} LaneFigures
 *
 * What the table shows of a question. `disturbed`: the machine was busy, so the figures do not count. `setup`: the
 * model, the machine and the lanes, which must be the same in all races of a list. `settings`: the race's other
 * settings, in words. `error`: why there are no figures.
 * @typedef {{
 *   lanes?: LaneFigures[], disturbed?: boolean, note?: string, setup?: string, settings?: string,
 *   date?: string | null, error?: string,
 * }} QuestionRow
 *
 * @typedef {{ median: number, low: number, high: number }} Spread
 */

/**
 * The time from the question's prompt to a lane's first token, in milliseconds: the prompt is read, the lane builds its
 * tables, its draft model reads the prompt, and the lane takes its first step. For a server, as the client saw it.
 * @param {Pick<Reel, "head"> & { steps: { event: Reel["steps"][number]["event"] }[] }} reel
 * @param {number} index
 */
export function firstTokenMs({ head, steps }, index) {
  const { lane, served, prefill_ms: prefillMs } = head.lanes[index];
  if (served) return prefillMs;
  const first = steps.find(({ event }) => event.lane === lane);
  return first ? head.prefill_ms + prefillMs + first.event.at_ms : 0;
}

// The model, the machine and the lanes of a race, in words.
/** @param {Pick<Reel["head"], "model" | "dtype" | "device" | "threads" | "lanes">} head */
export function describeSetup({ model, dtype, device, threads, lanes }) {
  const machine = [model, dtype, device, threads && countOf(threads, "thread")].filter(Boolean).join(", ");
  return `${machine}; ${lanes.map(({ title }) => title).join(", ")}`;
}

// A race's settings in words, without its lanes and their options.
/** @param {Pick<Reel["head"], "settings" | "thinking">} head */
export function describeSettings({ settings, thinking }) {
  const parts = Object.entries({ ...settings, thinking })
    .filter(([, value]) => ["string", "number", "boolean"].includes(typeof value))
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
  return parts.join(", ") || "not known";
}

/**
 * @param {Pick<Reel, "head" | "results" | "pace" | "finished"> & { steps: { event: Reel["steps"][number]["event"] }[] }} reel
 * @returns {QuestionRow}
 */
export function readFigures(reel) {
  const { head, results, pace, finished } = reel;
  const lanes = results.map((row, index) => ({
    lane: row.lane,
    title: row.title,
    speedup: row.speedup,
    tau: row.tau,
    tokens_per_s: row.tokens_per_s,
    identical: finished.lanes.find(({ lane }) => lane === row.lane)?.identical ?? null,
    compared: row.badge[1],
    first_token_ms: firstTokenMs(reel, index),
    tokens: row.tokens,
    steps: row.steps,
    drafted: row.drafted,
    accepted: row.accepted,
    loops: row.loops,
    measured: Boolean(row.measured),
    has_tokens: hasTokens(head.lanes[index]),
    num_draft: head.lanes[index].num_draft,
  }));
  const disturbed = Boolean(pace?.disturbed);
  return {
    lanes,
    disturbed,
    note: pace?.note ?? "",
    setup: describeSetup(head),
    settings: describeSettings(head),
    date: head.date,
  };
}

// Whether a row's figures count: the question was raced, and nothing disturbed the machine.
/** @param {QuestionRow | undefined} row */
export function counts(row) {
  return Boolean(row?.lanes) && !row.disturbed;
}

/**
 * @param {number[]} values at least one
 * @returns {Spread}
 */
export function spreadOf(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return { median, low: sorted[0], high: sorted.at(-1) };
}

/**
 * Each lane's figures over all questions that count, in the order of the lanes; [] if no question counts. `best` and
 * `worst` are the indices of the rows with the highest and the lowest speedup; -1 if all speedups are equal, or if a
 * server decoded the lane.
 * @param {(QuestionRow | undefined)[]} rows
 */
export function summarise(rows) {
  const counted = [...rows.entries()].filter(([, row]) => counts(row));
  const [first] = counted;
  if (!first) return [];
  return first[1].lanes.map(({ lane, title, measured }, index) => {
    const figures = counted.map(([, row]) => row.lanes[index]);
    const speedup = spreadOf(figures.map((row) => row.speedup));
    const differ = !measured && speedup.low < speedup.high;
    // The index of the question with this speedup.
    const questionWith = (value) => (differ ? counted.find(([, row]) => row.lanes[index].speedup === value)[0] : -1);
    // A server's figure of 0 is one that it did not report.
    const spreadOfKnown = (values) => {
      const known = measured ? values.filter(Boolean) : values;
      return spreadOf(known.length ? known : [0]);
    };
    const compared = figures.filter(({ identical }) => identical !== null);
    return {
      lane,
      title,
      measured,
      speedup,
      tau: spreadOfKnown(figures.map((row) => row.tau)),
      first_token_ms: spreadOf(figures.map((row) => row.first_token_ms)),
      tokens_per_s: spreadOfKnown(figures.map((row) => row.tokens_per_s)),
      questions: figures.length,
      compared: compared.length,
      identical: compared.filter(({ identical }) => identical).length,
      best: questionWith(speedup.high),
      worst: questionWith(speedup.low),
    };
  });
}

/** @typedef {ReturnType<typeof summarise>[number]} LaneSummary */

// The lane with the highest median speedup; undefined if no lane is faster than vanilla.
/** @param {LaneSummary[]} summary */
export function findFastestLane(summary) {
  const best = summary.toSorted((a, b) => b.speedup.median - a.speedup.median)[0];
  return best && best.speedup.median > 1 ? best : undefined;
}
