// The tour's chapters, made from two recorded races: one in which drafting pays, and one in which it does not.
/** @import { PlayedReel } from "../stage/reel.js" */
/** @import { ResultRow } from "../lib/wire.d.ts" */
import { formatSpeedup } from "../lib/format.js";
import { chooseFailed, formatMs, makeScene, chooseBest, rankLanes, meanVanillaMs } from "./scenes.js";

// The number of tokens in the wide pass that the first chapter compares with a pass over one token.
const WIDE_ROWS = 8;
// The indices of the phases in PHASES (picture.js).
const PHASE_NUMBERS = { source: 0, draft: 1, verify: 2, accept: 3, cost: 4 };

/**
 * A part of a chapter, of `ms` ms: a guess at how long its words take to read. `view` is what it shows: "race" and
 * "proof" of `reel`, "figure" of `bars`, "scene" with the phases `from` to `to` (PHASE_NUMBERS) of `scene`, "result" of
 * the race that was shown last. "stay" keeps what the shot before has shown, and "end" waits until the visitor leaves.
 * @typedef {{
 *   words: string, ms: number, view: string, reel?: PlayedReel, soloLane?: string, bars?: [string, number][],
 *   scene?: any, from?: number, to?: number,
 * }} Shot
 */

/**
 * The chapters for a race in which drafting pays, `win`, and one in which it does not, `lose`. Returns [] if `win` has
 * no accepted draft or does not tell its model's size, or if no lane of `lose` is slower than vanilla.
 * @param {PlayedReel} win
 * @param {PlayedReel} lose
 * @returns {{title: string, shots: Shot[]}[]}
 */
export function writeChapters(win, lose) {
  const step = chooseBest(win, rankLanes(win)[0]);
  const worst = lose.results.toSorted((a, b) => a.speedup - b.speedup)[0];
  const { parameters, roofline } = win.started.about;
  if (!step || !parameters || !roofline || worst.speedup >= 1) return [];
  const best = makeScene(win, step);
  return [writeIdle(win), writeGuess(best), writeCheck(best), writeWin(win), writeLose(lose, worst)];
}

/** @param {PlayedReel} win */
function writeIdle(win) {
  const singleMs = meanVanillaMs(win);
  const wideMs = singleMs * relativeCost(win, WIDE_ROWS);
  const { parameters, roofline } = win.started.about;
  const shots = [
    {
      words: `A language model writes one token, about a word, at a time. We call that vanilla. This one has ${Math.round(parameters / 1e6)} million parameters.`,
      ms: 9000,
      view: "race",
      reel: win,
      soloLane: "vanilla",
    },
    {
      words: `Each token takes a whole pass: ${Math.round(roofline.weight_bytes / 1e6)} MB of weights are read from memory, ${formatMs(singleMs)} for one token.`,
      ms: 11_000,
      view: "stay",
    },
    {
      words: `One pass can check ${WIDE_ROWS} tokens in ${formatMs(wideMs)}, not ${WIDE_ROWS} × ${formatMs(singleMs)}: while weights are read, the processor has time to spare.`,
      ms: 12_000,
      view: "figure",
      bars: [
        ["1 pass, 1 token", singleMs],
        [`1 pass, ${WIDE_ROWS} tokens`, wideMs],
        [`${WIDE_ROWS} passes`, WIDE_ROWS * singleMs],
      ],
    },
    { words: "So can one pass write more than one token? Yes: guess first.", ms: 6000, view: "stay" },
  ];
  return { title: "The idle machine", shots };
}

function writeGuess(scene) {
  const draft = formatMs(scene.event.timing.draft_ms);
  return {
    title: "Guess",
    shots: [
      {
        words: "Answers repeat words that are already there: in the documents, the question, or the answer itself.",
        ms: 13_000,
        ...onePhase(scene, "source"),
      },
      {
        words: `So a drafter proposes what followed those words before: ${scene.drafted} draft tokens, found in ${draft}, without the model.`,
        ms: 13_000,
        ...onePhase(scene, "draft"),
      },
      { words: "They are a guess. Nothing is printed yet.", ms: 6000, view: "stay" },
    ],
  };
}

function writeCheck(scene) {
  return {
    title: "Check in one pass",
    shots: [
      {
        words: `The model reads all ${scene.drafted} in one pass, and predicts its own next token after each.`,
        ms: 12_000,
        ...onePhase(scene, "verify"),
      },
      {
        words: `Draft tokens that equal the model's own are accepted: ${scene.accepted} of ${scene.drafted}. From the first difference on the draft is dropped.`,
        ms: 13_000,
        ...onePhase(scene, "accept"),
      },
      {
        words: "So the text is exactly what the model writes alone. A wrong guess costs time, never a wrong word.",
        ms: 12_000,
        ...onePhase(scene, "cost"),
      },
    ],
  };
}

/** @param {PlayedReel} reel */
function writeWin(reel) {
  const [lane] = rankLanes(reel);
  const row = reel.results[lane];
  const lanes = reel.results.length;
  return {
    title: "Win",
    shots: [
      {
        words: `${lanes} lanes, one model, one question: “${reel.head.question}” Boxed words were drafted and accepted.`,
        ms: 14_000,
        view: "race",
        reel,
      },
      {
        words: `${row.title} wins: ${formatSpeedup(row.speedup)} vanilla, at ${row.tau.toFixed(1)} tokens per step.`,
        ms: 9000,
        view: "result",
      },
      { words: "And the text is the same in all lanes.", ms: 9000, view: "proof", reel },
    ],
  };
}

/**
 * @param {PlayedReel} reel
 * @param {ResultRow} worst
 */
function writeLose(reel, worst) {
  const failed = chooseFailed(reel, [reel.results.indexOf(worst), ...rankLanes(reel)]);
  return {
    title: "Lose",
    shots: [
      {
        words: `Another question, without documents: “${reel.head.question}” There is little to copy.`,
        ms: 14_000,
        view: "race",
        reel,
      },
      ...(failed
        ? [
            {
              words: "Here a whole draft is wrong: the pass took longer, and still yields one token.",
              ms: 12_000,
              ...allPhases(makeScene(reel, failed)),
            },
          ]
        : []),
      {
        words: `${worst.title} comes out at ${formatSpeedup(worst.speedup)} vanilla: slower, for its checks cost more than they save.`,
        ms: 9000,
        view: "result",
      },
      { words: "Drafting pays where text repeats. Does it on your documents? Ask a question.", ms: 9000, view: "end" },
    ],
  };
}

const onePhase = (scene, phase) => ({ view: "scene", scene, from: PHASE_NUMBERS[phase], to: PHASE_NUMBERS[phase] });
const allPhases = (scene) => ({ view: "scene", scene, from: PHASE_NUMBERS.source, to: PHASE_NUMBERS.cost });

/**
 * The time of a pass over `rows` rows, relative to a pass over one row, from the recording's cost curve; 1 without one.
 * @param {PlayedReel} reel
 * @param {number} rows
 */
function relativeCost({ head }, rows) {
  const { rows: sizes, ratio } = head.cost_curve ?? { rows: [1], ratio: [1] };
  const index = sizes.findIndex((size) => size >= rows);
  return ratio[index < 0 ? sizes.length - 1 : index];
}
