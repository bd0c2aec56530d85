// Attract mode, as of an arcade game: plays the recorded races in turn until the visitor does something.
/** @import { RaceCard } from "../lib/wire.d.ts" */
import { canRace } from "../lib/gradio.js";
import { listen } from "../lib/stage_events.js";

const PAUSE_MS = 7000;
const ACTIONS = ["pointerdown", "keydown", "focusin", "drop", "hashchange"];

export class Attract {
  /** @param {RaceCard[]} cards */
  constructor(stage, cards) {
    this.stage = stage;
    this.cards = cards;
    this.next = 0;
    this.stop = this.stop.bind(this);
    for (const action of ACTIONS) window.addEventListener(action, this.stop, { once: true, capture: true });
    listen(stage.node, "refused", this.stop);
    listen(stage.node, "result", () => this.playNextLater());
  }

  async play() {
    if (this.stopped || !this.cards.length) return;
    const card = this.cards[this.next++ % this.cards.length];
    await this.stage.gallery.play(card.name, { automatic: true });
  }

  playNextLater() {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.play(), PAUSE_MS);
  }

  // The race on the stage plays to its end, and no other follows. A race that is still loading is not shown, except on
  // a page that only replays.
  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    if (canRace()) this.stage.gallery.cancelAutomatic();
    for (const action of ACTIONS) window.removeEventListener(action, this.stop, { capture: true });
  }
}
