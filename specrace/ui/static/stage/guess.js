// Asks the visitor which lane wins. One guess a race, until the first lane finishes; counts this visit's right guesses.
/** @import { ShownLane } from "../lib/wire.d.ts" */
import { button, make, setWords } from "../lib/dom.js";
import { hueOf, isServed } from "../lib/lanes.js";

const KEY = "specrace guesses";

// A browser may forbid session storage; then the count covers this race only.
function readTally() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? { right: 0, all: 0 };
  } catch {
    return { right: 0, all: 0 };
  }
}

function storeTally(tally) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(tally));
  } catch {
    // Without storage the count covers this race only, as readTally explains.
  }
}

export class Guess {
  constructor(host) {
    this.host = host;
    this.close();
  }

  /** @param {ShownLane[]} lanes */
  ask(lanes) {
    this.lanes = lanes;
    this.open = true;
    this.guess = undefined;
    const choices = make("div", "choices");
    choices.append(...lanes.flatMap((lane, index) => (isServed(lane) ? [] : [this.drawChoice(lane, index)])));
    this.host.replaceChildren(make("b", "who", "Who wins?"), choices);
    this.host.hidden = false;
  }

  drawChoice(lane, index) {
    const node = button("", `${lane.title} wins`, () => this.choose(index));
    setWords(node, lane.title);
    node.prepend(make("span", "key-hint", `${index + 1} `));
    node.dataset.hue = hueOf(lane);
    return node;
  }

  // Stores a guess. Returns false if it is too late, because a lane has finished or a guess was made.
  choose(index) {
    if (!this.open || !this.lanes[index] || isServed(this.lanes[index])) return false;
    this.open = false;
    this.guess = index;
    this.host.replaceChildren(make("b", "", `Your guess: ${this.lanes[index].title}`));
    return true;
  }

  // Ends the guessing, because the first lane has finished. A guess is kept until it is judged.
  end() {
    if (this.open) this.close();
  }

  close() {
    this.open = false;
    this.guess = undefined;
    this.host.replaceChildren();
    this.host.hidden = true;
  }

  // Judges the guess, once, and returns a sentence about it; "" without a guess.
  judge(winner) {
    if (this.guess === undefined) return "";
    const right = this.guess === winner;
    const before = readTally();
    const tally = { right: before.right + (right ? 1 : 0), all: before.all + 1 };
    storeTally(tally);
    this.close();
    return `${right ? "You guessed right" : "You guessed wrong"}: ${tally.right} of ${tally.all} so far.`;
  }
}
