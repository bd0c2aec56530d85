// While nobody acts, recorded races play, one after the other.
import { canRace } from "./gradio.js";

const PAUSE_MS = 7000;
const ACTS = ["pointerdown", "keydown", "focusin", "drop", "hashchange"];

export class Attract {
  constructor(stage, cards) {
    this.stage = stage;
    this.cards = cards;
    this.turn = 0;
    this.stop = this.stop.bind(this);
    for (const act of ACTS) window.addEventListener(act, this.stop, { once: true, capture: true });
    stage.node.addEventListener("refused", this.stop);
    stage.node.addEventListener("result", () => this.wait());
  }

  async play() {
    if (this.stopped || !this.cards.length) return;
    const card = this.cards[this.turn++ % this.cards.length];
    await this.stage.gallery.play(card.name, true);
  }

  wait() {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.play(), PAUSE_MS);
  }

  // The race that plays goes on; no other follows. A page that only replays still shows its one.
  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    if (canRace()) this.stage.gallery.withdraw();
    for (const act of ACTS) window.removeEventListener(act, this.stop, { capture: true });
  }
}
