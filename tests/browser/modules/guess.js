import { Guess } from "../../../specrace/ui/static/stage/guess.js";
import { LANES, put, SERVED } from "./fixtures.js";

function ask() {
  sessionStorage.clear();
  const guess = new Guess(put());
  guess.ask(LANES);
  return guess;
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a guess, right and wrong": () => {
    const guess = ask();
    const chosen = [guess.choose(1), guess.choose(0)];
    const words = [guess.judge(1)];
    guess.ask(LANES);
    guess.choose(0);
    words.push(guess.judge(1), guess.judge(1));
    return [
      [chosen, words],
      [
        [true, false],
        ["You guessed right: 1 of 1 so far.", "You guessed wrong: 1 of 2 so far.", ""],
      ],
    ];
  },
  "without a guess there is no judgement": () => {
    const guess = ask();
    guess.end();
    return [
      [guess.choose(1), guess.judge(1), guess.host.hidden],
      [false, "", true],
    ];
  },
  "a guess is still judged after guessing has ended": () => {
    const guess = ask();
    guess.choose(1);
    guess.end();
    return [guess.judge(1), "You guessed right: 1 of 1 so far."];
  },
  "a guess for a lane that does not exist": () => [ask().choose(5), false],
  "a server cannot be guessed": () => {
    const guess = new Guess(put());
    guess.ask([...LANES, { lane: "fast", title: "fast", served: SERVED }]);
    return [
      [guess.host.querySelectorAll("button").length, guess.choose(2), guess.choose(1)],
      [2, false, true],
    ];
  },
};
