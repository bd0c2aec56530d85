// Chooses the steps that the slow motion shows, the winner's best one and a failed one, and makes their scenes. A scene
// is all that the pictures of one step show: texts, counts, times and captions.
/** @import { Step } from "../lib/wire.d.ts" */
/** @import { PlayedReel, ReadStep } from "../stage/reel.js" */
import { countOf } from "../lib/format.js";
import { findSource, readText } from "./origins.js";
import { isControlToken, visibleText } from "../lib/pieces.js";
import { TIME_PARTS } from "../lib/tooltips.js";

// A rejected draft costs "next to nothing" up to this share of a single step's time.
const CHEAP = 0.1;
// A failed step should have at least this many draft tokens.
const SEVERAL = 3;

/** @param {Step} event */
export function countAccepted({ verdict, emitted }) {
  return Math.min(verdict.path.length - 1, emitted.length);
}

// The time of a step in ms.
/** @param {Step} event */
export function stepTime({ timing }) {
  return TIME_PARTS.reduce((sum, [part]) => sum + timing[part], 0);
}

/** @param {Step} event */
const countDrafted = ({ tree }) => tree.tokens.length - 1;
// Whether a step reads well in a picture: it has no control tokens, and its pending token is visible.
/** @param {Step} event */
const isPlain = ({ pieces }) => !pieces.some(isControlToken) && Boolean(visibleText(pieces[0]).trim());

/**
 * The step with the largest first measure; ties are decided by the next measure, then by order.
 * @param {ReadStep[]} steps
 * @param {((step: ReadStep) => number)[]} measures
 * @returns {ReadStep | undefined}
 */
function maxBy(steps, ...measures) {
  return steps.reduce((best, step) => {
    if (!best) return step;
    const difference = measures.map((measure) => measure(step) - measure(best)).find(Boolean);
    return difference > 0 ? step : best;
  }, undefined);
}

// The indices of our lanes that drafted, the fastest first; a server does not tell which tokens were rejected.
/** @param {PlayedReel} reel */
export function rankLanes(reel) {
  return (reel.results ?? [])
    .map((row, lane) => ({ ...row, lane }))
    .filter((row) => row.drafted > 0 && !row.measured)
    .sort((a, b) => b.speedup - a.speedup)
    .map((row) => row.lane);
}

/**
 * A lane's step with the most accepted tokens, preferably one that copied from a passage.
 * @param {PlayedReel} reel
 * @param {number} lane
 */
export function chooseBest(reel, lane) {
  const steps = reel.steps.filter((step) => step.lane === lane && countAccepted(step.event));
  // A run is [kind, text, tokens, spans]; its spans are the parts of passages that it was copied from.
  /** @param {ReadStep} step */
  const copied = ({ frame }) => Number(frame.runs.some(([, , , spans]) => spans?.length));
  return maxBy(
    steps,
    ({ event }) => countAccepted(event),
    copied,
    ({ event }) => Number(isPlain(event)),
  );
}

/**
 * A step whose whole draft was rejected, preferably not the first step: from the first of `lanes` where such a draft
 * has SEVERAL tokens, or else from the first lane that has one.
 * @param {PlayedReel} reel
 * @param {number[]} lanes
 */
export function chooseFailed(reel, lanes) {
  /** @param {ReadStep} step */
  const hasFailed = ({ event }) => countDrafted(event) && !countAccepted(event) && event.emitted.length;
  const failed = lanes.map((lane) =>
    maxBy(
      reel.steps.filter((step) => step.lane === lane && hasFailed(step)),
      ({ event }) => Number(isPlain(event)),
      ({ index }) => Number(index > 0),
      ({ event }) => countDrafted(event),
    ),
  );
  return failed.find((step) => step && countDrafted(step.event) >= SEVERAL) ?? failed.find(Boolean);
}

// The mean time of vanilla's steps in the same race, in ms; 0 without any.
/** @param {PlayedReel} reel */
export function meanVanillaMs(reel) {
  const vanilla = reel.head.lanes.findIndex(({ lane }) => lane === "vanilla");
  const times = reel.steps.filter(({ lane }) => lane === vanilla).map(({ event }) => stepTime(event));
  return times.length ? times.reduce((sum, ms) => sum + ms, 0) / times.length : 0;
}

// One or two scenes; none if no lane drafted anything.
/** @param {PlayedReel} reel */
export function makeScenes(reel) {
  const lanes = rankLanes(reel);
  const best = lanes.map((lane) => chooseBest(reel, lane)).find(Boolean);
  const failed = chooseFailed(reel, best ? [best.lane, ...lanes] : lanes);
  return [best, failed].filter(Boolean).map((step) => makeScene(reel, step));
}

/**
 * Collects what the pictures of a step show.
 * @param {PlayedReel} reel
 * @param {ReadStep} step
 */
export function makeScene(reel, { lane, index, event }) {
  const { title, lane: name } = reel.head.lanes[lane];
  const text = readText(reel, lane, index);
  const path = event.verdict.path;
  const accepted = countAccepted(event);
  const hasBonus = event.emitted.length > accepted;
  return {
    lane: name,
    title,
    step: index + 1,
    steps: reel.steps.filter((step) => step.lane === lane).length,
    event,
    path: path.slice(0, accepted + 1),
    drafted: countDrafted(event),
    accepted,
    emitted: event.emitted.length,
    written: text.output.slice(0, -1),
    pending: visibleText(text.output.length ? text.output.at(-1) : ""),
    run: path.slice(1, accepted + 1).map((node, depth) => ({ node, text: visibleText(event.texts[depth]) })),
    // The bonus token: undefined if the text was cut at its limit, "" if the model ended the text.
    bonus: hasBonus ? visibleText(event.texts[accepted]) : undefined,
    source: findSource(event, text, name),
    stepMs: stepTime(event),
    singleMs: meanVanillaMs(reel),
  };
}

const capitalize = (words) => `${words[0].toUpperCase()}${words.slice(1)}`;
const bothOrAll = (count) => (count === 2 ? "both" : `all ${count}`);

export function formatMs(time) {
  return `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;
}

// The time of this step, and of single steps that yield as many tokens: a list of [words, ms].
export function compareTimes({ emitted, stepMs, singleMs }) {
  const single = Number(singleMs.toFixed(1));
  const total = emitted * single;
  return [
    [`This step: ${formatMs(stepMs)} for ${countOf(emitted, "token")}`, stepMs],
    [
      emitted > 1
        ? `One at a time: ${emitted} × ${single.toFixed(1)} ms = ${formatMs(total)}`
        : `Vanilla: ${single.toFixed(1)} ms for 1 token`,
      total,
    ],
  ];
}

// A caption of one or two sentences for each phase.
export function captionsOf(scene) {
  const { title, drafted, accepted, source } = scene;
  const question = scene.step === 1 ? "How does the answer begin?" : "What comes next?";
  const shape = isChain(scene) ? "one after the other" : "in a tree";
  return [
    `${question} ${title} drafts from ${source.name}.`,
    drafted > 1
      ? `${drafted} draft tokens, ${shape}. None is verified yet.`
      : "One draft token. It is not verified yet.",
    drafted > 1
      ? `One pass of the model reads ${bothOrAll(drafted)} at once and predicts its own token after each.`
      : "One pass of the model reads it and predicts its own tokens.",
    captionVerdict(scene),
    accepted ? captionGain(scene) : captionLoss(scene),
  ];
}

function isChain({ event }) {
  return event.tree.parents.every((parent, node) => parent === node - 1);
}

function captionVerdict({ drafted, accepted, bonus }) {
  if (!accepted) {
    const instead = bonus?.trim() ? `“${bonus.trim()}” instead` : "something else";
    return `The model predicts ${instead}: ${drafted > 1 ? `${bothOrAll(drafted)} are` : "the draft is"} rejected. The step yields that one token.`;
  }
  const allAccepted = accepted === drafted;
  const number = allAccepted && drafted > 1 ? capitalize(bothOrAll(drafted)) : accepted;
  const match = `${number} match${accepted > 1 ? "" : "es"} what the model predicts: accepted.`;
  const clauses = [];
  if (!allAccepted) clauses.push("the rest is rejected");
  if (bonus !== undefined) clauses.push(bonus ? "the model adds one token" : "the model ends the text");
  return clauses.length ? `${match} ${capitalize(clauses.join(", and "))}.` : match;
}

function captionGain({ emitted, stepMs, singleMs }) {
  const singles = stepMs / singleMs;
  const words = `${countOf(emitted, "token")} in the time of ${singles.toFixed(1)} single steps.`;
  return singles < emitted ? words : `${words} This draft did not pay.`;
}

function captionLoss({ stepMs, singleMs }) {
  const more = stepMs - singleMs;
  return more > CHEAP * singleMs
    ? `A rejected draft costs time, here ${formatMs(more)}. It never costs a wrong token.`
    : "A rejected draft costs next to nothing here, and never a wrong token.";
}
