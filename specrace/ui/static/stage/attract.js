// Plays the recorded races in turn until the visitor does something.
import { canRace } from "../lib/gradio.js";

const PAUSE_MS = 7000;
const ACTIONS = ["pointerdown", "keydown", "focusin", "drop", "hashchange"];

export class Attract {
  constructor(stage, cards) {
    this.stage = stage;
    this.cards = cards;
    this.next = 0;
    this.stop = this.stop.bind(this);
    for (const action of ACTIONS) window.addEventListener(action, this.stop, { once: true, capture: true });
    stage.node.addEventListener("refused", this.stop);
    stage.node.addEventListener("result", () => this.wait());
  }

  async play() {
    if (this.stopped || !this.cards.length) return;
    const card = this.cards[this.next++ % this.cards.length];
    await this.stage.gallery.play(card.name, true);
  }

  wait() {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.play(), PAUSE_MS);
  }

  // The race on the stage plays to its end, and no other follows. A race that is still loading is not shown, except on a
  // page that only replays.
  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    if (canRace()) this.stage.gallery.cancelOffered();
    for (const action of ACTIONS) window.removeEventListener(action, this.stop, { capture: true });
  }
}
