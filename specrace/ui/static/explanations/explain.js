// Explain mode: a caption says in plain words what has just happened, and stays long enough to be read. Each caption is
// shown once a race, except that a few that fit many steps are repeated after a while.
/** @import { LaneFrame, ResultRow } from "../lib/wire.d.ts" */
import { make, setWords } from "../lib/dom.js";
import { countOf, formatSpeedup } from "../lib/format.js";
import { isServed } from "../lib/lanes.js";
import { findBest } from "../stage/results.js";

// How long a caption stays before that of another step may replace it; after how long one of REPEATED may return. Both
// are guesses, not tuned.
const CAPTION_MS = 4200;
const REPEAT_MS = 16_000;
const REPEATED = new Set(["accepted", "all", "copied"]);

// [key, describe]: `describe` gets what a lane's latest frame shows, and returns a caption, or a falsy value if the
// caption does not apply. Of two captions that apply, the earlier one is preferred. Those about speed wait for some
// steps, because the speedup of the first few says little; the numbers of steps are guesses.
/** @type {[string, (seen: Record<string, any>) => any][]} */
const CAPTIONS = [
  [
    "end",
    ({ ended, first, title, meters }) =>
      ended &&
      first &&
      `${title} finished first: ${countOf(meters.tokens, "token")} in ${countOf(meters.steps, "forward pass")}.`,
  ],
  [
    "vanilla",
    ({ name, meters }) =>
      name === "vanilla" && meters.steps && "Vanilla runs the model once for each token. That is the speed to beat.",
  ],
  [
    "all",
    ({ title, draft }) =>
      draft?.drafted > 1 &&
      draft.accepted === draft.drafted &&
      `${title} proposed ${draft.drafted} tokens, the model accepted all: ${draft.accepted + 1} tokens in one forward pass.`,
  ],
  [
    "accepted",
    ({ title, draft }) =>
      draft?.accepted > 1 &&
      `${title} proposed ${draft.drafted} tokens, the model accepted ${draft.accepted}: ${draft.accepted + 1} tokens in one forward pass.`,
  ],
  [
    "copied",
    ({ title, spans }) =>
      spans?.length && `${title} copied those words from passage ${spans[0][0] + 1}; they light up there.`,
  ],
  [
    "refused",
    ({ title, draft }) =>
      draft?.drafted &&
      !draft.accepted &&
      `${title} proposed ${countOf(draft.drafted, "token")}, the model accepted none: the step yields the model's own token.`,
  ],
  [
    "none",
    ({ name, title, draft }) =>
      name !== "vanilla" &&
      draft?.drafted === 0 &&
      `${title} had nothing to propose, so this step yields one token, as vanilla's do.`,
  ],
  [
    "same",
    ({ name, badge }) =>
      name !== "vanilla" &&
      (badge === "same" || badge === "identical") &&
      "The model verifies every draft, so all lanes print the same text. Only the time differs.",
  ],
  [
    "law",
    ({ title, badge }) =>
      badge === "law" &&
      `${title} samples its own text under rejection sampling: vanilla's distribution, not vanilla's text.`,
  ],
  [
    "slower",
    ({ name, title, meters }) =>
      name !== "vanilla" &&
      meters.steps > 12 &&
      meters.speedup > 0 &&
      meters.speedup < 0.95 &&
      `${title} is slower than vanilla here: verifying its drafts costs more than they save.`,
  ],
  [
    "ahead",
    ({ name, title, meters }) =>
      name !== "vanilla" &&
      meters.steps > 8 &&
      meters.speedup > 1.2 &&
      `${title} prints ${meters.tau.toFixed(1)} tokens per step and is ${formatSpeedup(meters.speedup)} as fast as vanilla.`,
  ],
  ["loops", ({ title, loops }) => loops && `${title}'s text repeats itself, which flatters every drafter that copies.`],
];

// The caption to show, {key, words}, or undefined: preferably one that was never shown, else the one shown longest ago.
// `shownAt` maps a caption's key to the time when it was last shown.
export function chooseCaption(seen, shownAt, now) {
  const candidates = [];
  for (const [key, describe] of CAPTIONS) {
    const words = describe(seen);
    const last = shownAt.get(key) ?? -Infinity;
    if (words && (last === -Infinity || (REPEATED.has(key) && now - last > REPEAT_MS)))
      candidates.push({ last, key, words });
  }
  return candidates.sort((a, b) => (a.last === b.last ? 0 : a.last - b.last))[0];
}

// `best`: the fastest lane, undefined if none is faster than vanilla, or if the figures do not count.
function explainResult(best) {
  if (!best) return "The race is over. Replay it, and watch how many words each lane writes at once.";
  // A step yields `tau` tokens, each in 1 / `speedup` of the time of a step of vanilla's.
  const cost = (best.tau / best.speedup).toFixed(2);
  const share = Math.round((100 * best.accepted) / best.drafted);
  return `The model accepted ${share} % of ${best.title}'s drafts; a step took ${cost} times as long as one of vanilla's, which yields one token.`;
}

export class Explainer {
  constructor(stage) {
    this.stage = stage;
    this.node = make("p", "caption");
    this.node.hidden = true;
    this.shownAt = new Map();
    this.finished = new Set();
    // The current caption stays until this time.
    this.until = 0;
    // The caption at the end of the race: why its winner is fastest.
    this.why = "";
  }

  toggle(on) {
    this.node.hidden = !on;
    this.stage.dataset.explain = String(on);
    if (on && this.why) this.showCaption("why", this.why);
    else if (on)
      this.showCaption(
        "hello",
        "Each pane is one way of writing the same answer. Watch how many words appear at once.",
      );
    return on;
  }

  // A race or a replay starts, and every caption may be shown again.
  begin(live) {
    this.shownAt.clear();
    this.finished.clear();
    this.why = "";
    if (this.node.dataset.about === "why") this.until = 0;
    if (live)
      this.showCaption(
        "start",
        "Every lane has the same model and the same question. A lane's clock counts only its own work.",
      );
  }

  // Receives a lane's latest frame, live or replayed, and may show a caption about it. A server's lane has none: it
  // takes no part in the race for the first place, and its rejected tokens are unknown.
  /**
   * @param {LaneFrame} frame
   * @param {{ lane: string, title?: string, served?: object | null }} method
   */
  explain(frame, method) {
    if (isServed(method)) return;
    if (frame.end) this.finished.add(method.lane);
    if (this.node.hidden || performance.now() < this.until) return;
    // A run is [kind, text, tokens, spans]; its spans are the parts of passages that it was copied from.
    const spans = frame.runs.findLast((run) => run[3]?.length)?.[3];
    const seen = {
      name: method.lane,
      title: method.title,
      draft: frame.draft,
      meters: frame.meters,
      badge: frame.badge[0],
      loops: frame.loops,
      spans,
      ended: Boolean(frame.end),
      first: this.finished.size === 1,
    };
    const caption = chooseCaption(seen, this.shownAt, performance.now());
    if (caption) this.showCaption(caption.key, caption.words);
  }

  // The race is over: says why the lane that the headline names is fastest, if one is.
  /** @param {ResultRow[]} rows */
  conclude(rows) {
    this.why = explainResult(findBest(rows));
    this.showCaption("why", this.why);
  }

  showCaption(key, words) {
    this.shownAt.set(key, performance.now());
    this.until = performance.now() + CAPTION_MS;
    setWords(this.node, words);
    this.node.dataset.about = key;
  }
}
