import { hasDefaultSettings, Examples } from "../../../specrace/ui/static/gallery/examples.js";
import { put } from "./fixtures.js";

// An example plays the greedy recording of its question, whose settings are the default ones.
const CARDS = [
  { name: "sampled", question: "Why?", date: "2026-11-21T20:07:42+00:00", model: "a-model", temperature: 1 },
  { name: "greedy", question: "Why?", date: "2026-11-22T20:07:42+00:00", model: "a-model", temperature: 0 },
  { name: "other", question: "How?", date: "2026-11-23T20:07:42+00:00", model: "a-model", temperature: 0 },
];

// A page with one example button. `actions` lists recordings played, sentences shown and live races started.
// `arrives`: whether a recording reaches the stage. After a press, `await 0` lets the page react.
function examples(question, arrives = true) {
  const actions = [];
  const host = put(["button", { className: "example", textContent: question }]);
  host.addEventListener("click", ({ target }) => actions.push(`live ${target.textContent}`));
  const announce = (sentence) => actions.push(sentence);
  const play = async (name) => {
    actions.push(`play ${name}`);
    return arrives;
  };
  new Examples(CARDS, { play, announce }).listen();
  return { actions, example: host.firstChild };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a recording that does not arrive is not announced": async () => {
    const { actions, example } = examples("Why?", false);
    example.click();
    await 0;
    return [actions, ["play greedy"]];
  },
  "the first press plays the recording, the next one races": async () => {
    const { actions, example } = examples("Why?");
    example.click();
    await 0;
    example.click();
    await 0;
    return [
      [...actions, example.title],
      ["play greedy", "Recorded 2026-11-22. Press again to race live.", "live Why?", "Press again to race live"],
    ];
  },
  "a question without a recording races": async () => {
    const { actions, example } = examples("When?");
    example.click();
    await 0;
    return [actions, ["live When?"]];
  },
  "addresses that leave the settings at their defaults": () => [
    ["", "?q=Why%3F&__theme=light", "?autorun=1", "?lanes=vanilla,trie", "?q=a&seed=3"].map(hasDefaultSettings),
    [true, true, true, false, false],
  ],
};
