import { Start } from "../../../specrace/ui/static/stage/start.js";
import { put } from "./fixtures.js";

// A start, and what it has said and done.
function open() {
  const log = [];
  const start = new Start(put(), { play: () => log.push("play"), announce: (words) => log.push(words.slice(0, 17)) });
  return { start, log };
}

export const cases = {
  "a race counts down, and a recorded one plays at once": async () => {
    const { start, log } = open();
    start.schedule(false);
    start.schedule(true);
    const [shown, waiting] = [start.node.textContent, !start.node.hidden];
    while (!start.node.hidden) await new Promise((done) => setTimeout(done, 50));
    return [
      [shown, waiting, log],
      ["3", true, ["play", "play"]],
    ];
  },
  "an open vote holds the start until somebody starts the race": () => {
    const { start, log } = open();
    start.isVoteOpen = () => true;
    start.schedule(true);
    const states = [start.node.hidden, start.release(), start.node.hidden, start.release()];
    start.cancel();
    return [
      [states, start.node.hidden, log],
      [[true, true, false, false], true, ["The vote is open."]],
    ];
  },
};
