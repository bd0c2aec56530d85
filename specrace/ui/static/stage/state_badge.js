// The badge that says what the stage shows: a race that is prepared, run, repeated or over, or a replay. It is the only
// place that says so.
const TITLES = {
  Repeating: "The server runs the same race again, out of sight, until its figures are stable. Stop ends that.",
  Disturbed: "Other work on the machine disturbed the race, so that its figures do not count.",
};

/**
 * The state in a word or two; "" if the stage is empty. The arguments are the stage's data attributes: `outcome` is
 * "counted", "stopped" or "disturbed", `held` whether a vote
 * holds the start, `again` is how many repetitions have ended.
 * @param {DOMStringMap} data
 */
export function nameState({ phase, mode, held, running, outcome, recorded, again }) {
  if (phase === "waiting") return "Preparing";
  if (mode === "live") return held === "true" ? "Waiting" : "Racing";
  if (mode === "replay") return "Replay";
  if (mode !== "result") return "";
  // Run 1 is the race itself, and the one after the runs that have ended is now running.
  if (running === "true") return `Repeating: run ${Number(again ?? 0) + 2}`;
  if (outcome === "stopped") return "Stopped";
  if (outcome === "disturbed") return "Disturbed";
  return recorded === "true" ? "Replayed" : "Finished";
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
    if (this.badge.textContent === state) return;
    this.badge.textContent = state;
    const [word] = state.split(":");
    this.badge.dataset.state = word.toLowerCase();
    this.badge.title = TITLES[word] ?? "";
  }
}
