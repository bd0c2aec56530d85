// An example that was recorded plays at once at its first press; the next press races live.
const OWN = ["q", "autorun"];

// The address tells of settings that are not the usual ones: no recording was made with them.
export function asUsual(search) {
  return [...new URLSearchParams(search).keys()].every((name) => OWN.includes(name) || name.startsWith("__"));
}

export class Examples {
  // `cards` are recorded races, `play` shows one and tells whether it came, `say` shows a sentence.
  constructor(cards, { play, say }) {
    Object.assign(this, { cards, play, say });
    this.played = new Set();
  }

  // Before Gradio hears of a press.
  listen() {
    document.addEventListener("click", (event) => this.press(event), { capture: true });
  }

  find(words) {
    if (this.played.has(words) || !asUsual(location.search)) return undefined;
    return this.cards.find((card) => card.question === words && !card.temperature);
  }

  async press(event) {
    const chip = event.target.closest?.(".example");
    const card = chip && this.find(chip.textContent.trim());
    if (!card) return;
    event.stopImmediatePropagation();
    this.played.add(card.question);
    chip.title = "Press again to race live";
    // The strip below names the machine, too.
    if (await this.play(card.name)) this.say(`Recorded ${String(card.date).slice(0, 10)}. Press again to race live.`);
  }
}
