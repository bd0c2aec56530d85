// The page's example questions. One that has a recorded race plays it at the first press; the next press races live.
/** @import { RaceCard } from "../lib/wire.d.ts" */
// Parameters of the address that change no setting. Nor do Gradio's own, which begin with "__".
const OTHER_PARAMETERS = ["q", "autorun"];

// Whether the page's address changes no setting, so that the page has the default settings, like the recordings.
export function hasDefaultSettings(search) {
  return [...new URLSearchParams(search).keys()].every(
    (name) => OTHER_PARAMETERS.includes(name) || name.startsWith("__"),
  );
}

export class Examples {
  /**
   * @param {RaceCard[]} cards recorded races
   * @param {{ play: (name: string) => Promise<boolean>, announce: (sentence: string) => void }} actions `play` plays a
   *   recorded race, and returns whether it arrived
   */
  constructor(cards, { play, announce }) {
    this.cards = cards;
    this.play = play;
    this.announce = announce;
    this.played = new Set();
  }

  // In the capture phase: before Gradio receives the click.
  listen() {
    document.addEventListener("click", (event) => this.press(event), { capture: true });
  }

  // The recorded race to play for a question, if it has not been played yet.
  find(question) {
    if (this.played.has(question) || !hasDefaultSettings(location.search)) return undefined;
    return this.cards.find((card) => card.question === question && !card.temperature);
  }

  async press(event) {
    const chip = event.target.closest?.(".example");
    const card = chip && this.find(chip.textContent.trim());
    if (!card) return;
    event.stopImmediatePropagation();
    this.played.add(card.question);
    chip.title = "Press again to race live";
    // The machine is named below the stage, not here.
    if (await this.play(card.name))
      this.announce(`Recorded ${String(card.date).slice(0, 10)}. Press again to race live.`);
  }
}
