// The races of this visit, above the recorded races: the question, the fastest lane, the time. A press opens one again.
/** @import { PlayedReel } from "./reel.js" */
import { make } from "../lib/dom.js";
import { formatSpeedup } from "../lib/format.js";
import { listen } from "../lib/stage_events.js";
import { findBest } from "./results.js";

// A race takes about a megabyte of memory.
const MAX_RACES = 20;

/**
 * A race's fastest lane in words.
 * @param {PlayedReel} reel
 */
export function describeBest({ results, pace, repeated }) {
  if ((repeated ?? pace)?.disturbed) return "disturbed, does not count";
  const best = findBest(results);
  return best ? `${best.title}: ${formatSpeedup(best.speedup)} vanilla` : "no lane is faster than vanilla";
}

export class History {
  /**
   * `now` returns the time as a Date.
   * @param {Element} stage
   * @param {HTMLElement} section its shelf gets the cards
   * @param {(reel: PlayedReel) => void} open
   * @param {() => Date} now
   */
  constructor(stage, section, open, now = () => new Date()) {
    this.section = section;
    this.open = open;
    this.now = now;
    this.live = false;
    listen(stage, "begun", ({ live }) => (this.live = live));
    listen(stage, "reel", (reel) => this.add(reel));
    // The figures of the latest race change while the server repeats it.
    listen(stage, "figures", () => this.describe?.());
  }

  /** @param {PlayedReel} reel */
  add(reel) {
    if (!this.live || reel.phase === "stopped") return;
    this.live = false;
    const card = make("button", "card");
    card.type = "button";
    const best = make("span");
    this.describe = () => (best.textContent = describeBest(reel));
    this.describe();
    const time = this.now().toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
    card.append(make("b", "", reel.head.question ?? "No question"), best, make("small", "", `raced at ${time}`));
    card.addEventListener("click", () => this.open(reel));
    const shelf = this.section.querySelector(".shelf");
    shelf.prepend(card);
    while (shelf.children.length > MAX_RACES) shelf.lastElementChild.remove();
    this.section.hidden = false;
  }
}
