import { Start } from "../../../specrace/ui/static/stage/start.js";
import { put } from "./fixtures.js";

// A start, what it played and announced, and its calls of `showHeld` and `showCounting`.
function open() {
  const log = [];
  const holds = [];
  const counts = [];
  const start = new Start(put(), {
    play: () => log.push("play"),
    announce: (words) => log.push(words.slice(0, 17)),
    showHeld: (held) => holds.push(held),
    showCounting: (counting) => counts.push(counting),
  });
  return { start, log, holds, counts };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a race counts down, and a recorded one plays at once": async () => {
    const { start, log, counts } = open();
    start.schedule(false);
    start.schedule(true);
    // Each call of `schedule` first ends a countdown; then there is one call for each of 3, 2, 1 and 0.
    const [shown, waiting] = [start.node.textContent, !start.node.hidden];
    while (!start.node.hidden) await new Promise((done) => setTimeout(done, 50));
    return [
      [shown, waiting, log, counts],
      ["3", true, ["play", "play"], [false, false, true, true, true, false]],
    ];
  },
  "an open vote holds the start until somebody starts the race": () => {
    const { start, log, holds } = open();
    start.isVoteOpen = () => true;
    start.schedule(true);
    const states = [start.node.hidden, start.release(), start.node.hidden, start.release()];
    start.cancel();
    return [
      [states, start.node.hidden, log, holds],
      [[true, true, false, false], true, ["The vote is open."], [false, true, false, false]],
    ];
  },
};
