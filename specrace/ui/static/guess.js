// Who wins? One guess a race, until the first lane is over the line, and how many of this visit were right.
import { button, make } from "./dom.js";
import { hueOf } from "./lanes.js";

const KEY = "specrace guesses";

// A browser may forbid the store; then only this race counts.
function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? { right: 0, all: 0 };
  } catch {
    return { right: 0, all: 0 };
  }
}

function keep(tally) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(tally));
  } catch {
    // It counts for this race only.
  }
}

export class Guess {
  constructor(host) {
    this.host = host;
    this.close();
  }

  ask(lanes) {
    this.lanes = lanes;
    this.open = true;
    this.guess = undefined;
    const keys = make("div", "choices");
    keys.append(...lanes.map((lane, index) => this.choice(lane, index)));
    this.host.replaceChildren(make("b", "", "Who wins?"), keys);
    this.host.hidden = false;
  }

  choice(lane, index) {
    const node = button("", `${lane.title} wins`, () => this.choose(index));
    node.append(make("span", "key-hint", `${index + 1} `), lane.title);
    node.dataset.hue = hueOf(lane);
    return node;
  }

  // Whether a guess was still open.
  choose(index) {
    if (!this.open || !this.lanes[index]) return false;
    this.open = false;
    this.guess = index;
    this.host.replaceChildren(make("b", "", `Your guess: ${this.lanes[index].title}`));
    return true;
  }

  // The first lane is over the line.
  end() {
    if (this.open) this.close();
  }

  close() {
    this.open = false;
    this.guess = undefined;
    this.host.replaceChildren();
    this.host.hidden = true;
  }

  // The guess, judged once: what to say of it.
  judge(winner) {
    if (this.guess === undefined) return "";
    const right = this.guess === winner;
    const { right: before, all } = read();
    const tally = { right: before + right, all: all + 1 };
    keep(tally);
    this.close();
    return `${right ? "You guessed right" : "You guessed wrong"}: ${tally.right} of ${tally.all} so far.`;
  }
}
