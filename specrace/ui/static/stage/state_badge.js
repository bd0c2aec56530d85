// The badge that says what the stage shows: a race that is prepared, run, repeated or over, or a replay. It is the only
// place that says so.
import { make } from "../lib/dom.js";
import { shorten } from "../lib/format.js";

const TITLES = {
  Repeating: "The server runs the same race again, out of sight, until its figures are stable. Stop ends that.",
  "Earlier race": "The stage still shows the race before. Press Race to ask the question that is typed.",
  Disturbed: "Other work on the machine disturbed the race, so that its figures do not count.",
};

// The largest number of characters of a model's name.
const MAX_NAME = 24;

/**
 * The state in a word or two; "" if the stage is empty. The arguments are the stage's data attributes. `outcome` is
 * "counted", "stopped" or "disturbed". `held` tells whether a vote holds the start, `counting` whether the countdown
 * runs, `otherQuestion` whether another question is typed. `again` is how many repetitions have ended.
 * @param {DOMStringMap} data
 */
export function nameState({ phase, mode, held, counting, running, outcome, recorded, again, otherQuestion }) {
  if (phase === "waiting") return "Preparing";
  if (mode === "live" && counting === "true") return "Starting";
  if (mode === "live") return held === "true" ? "Waiting" : "Racing";
  if (mode === "replay") return "Replay";
  if (mode !== "result") return "";
  if (otherQuestion === "true") return "Earlier race";
  // Run 1 is the race itself, the repetitions are 2, 3, ..., and the one after those that have ended is running.
  if (running === "true") return `Repeating: run ${Number(again ?? 0) + 2}`;
  if (outcome === "stopped") return "Stopped";
  if (outcome === "disturbed") return "Disturbed";
  return recorded === "true" ? "Replayed" : "Finished";
}

/**
 * The model that a recorded race was run with, which need not be the page's; "" in a race of this visit.
 * @param {DOMStringMap} data
 */
export function nameModel({ recorded, model, mode, otherQuestion }) {
  if (recorded !== "true" || !model || !["replay", "result"].includes(mode)) return "";
  if (mode === "result" && otherQuestion === "true") return "";
  // Without its adapter's name, which is in the line below the panes.
  return ` ${shorten(model.split(" + ", 1)[0], MAX_NAME)}`;
}

// Keeps the badge up to date.
export class StateBadge {
  /**
   * @param {HTMLElement} stage the .stage element
   * @param {HTMLElement} badge
   */
  constructor(stage, badge) {
    this.stage = stage;
    this.badge = badge;
    new MutationObserver(() => this.update()).observe(stage, { attributes: true });
    this.update();
  }

  update() {
    const state = nameState(this.stage.dataset);
    const model = state && nameModel(this.stage.dataset);
    if (this.badge.textContent === state + model) return;
    const [word, run = ""] = state.split(/(?=:)/);
    const parts = Object.entries({ run, model }).filter(([, words]) => words);
    this.badge.replaceChildren(word, ...parts.map(([name, words]) => make("span", `${name}-name`, words)));
    this.badge.dataset.state = word.toLowerCase();
    this.badge.title = TITLES[word] ?? "";
  }
}
