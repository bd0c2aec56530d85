// The start of a race's playback: after a countdown or, while the audience votes, once somebody starts it.
import { make } from "../lib/dom.js";

// The countdown begins at COUNTS, and each number stays for BEAT_MS.
const COUNTS = 3;
const BEAT_MS = 700;
const HELD = "The vote is open. Space, or the next slide on a remote, starts the race.";

export class Start {
  /**
   * @param {HTMLElement} host where the countdown is shown
   * @param {{
   *   play: () => void, announce: (sentence: string) => void, showHeld: (held: boolean) => void,
   *   showCounting: (counting: boolean) => void,
   * }} actions
   */
  constructor(host, { play, announce, showHeld, showCounting }) {
    this.play = play;
    this.announce = announce;
    this.showHeld = showHeld;
    this.showCounting = showCounting;
    this.node = make("p", "countdown");
    this.node.hidden = true;
    this.node.setAttribute("aria-hidden", "true");
    host.append(this.node);
    // Whether a vote holds the start. Set by the audience's poll.
    this.isVoteOpen = () => false;
    this.held = false;
  }

  // Starts the playback: after a countdown if `wait`, else at once. While a vote is open, `release` starts it.
  schedule(wait) {
    this.cancel();
    this.setHeld(this.isVoteOpen());
    if (this.held) this.announce(HELD);
    else if (wait) this.count(COUNTS);
    else this.play();
  }

  // Ends the wait for the vote. Returns whether there was one.
  release() {
    if (!this.held) return false;
    this.setHeld(false);
    this.count(COUNTS);
    return true;
  }

  setHeld(held) {
    this.held = held;
    this.showHeld(held);
  }

  count(number) {
    this.node.hidden = !number;
    this.node.textContent = String(number);
    this.showCounting(number > 0);
    if (number) this.timer = setTimeout(() => this.count(number - 1), BEAT_MS);
    else this.play();
  }

  cancel() {
    clearTimeout(this.timer);
    this.setHeld(false);
    this.showCounting(false);
    this.node.hidden = true;
  }
}
