import { hasDefaultSettings, Examples } from "../../../specrace/ui/static/examples.js";
import { put } from "./given.js";

const CARDS = [
  { name: "sampled", question: "Why?", date: "2026-11-21T20:07:42+00:00", model: "a-model", temperature: 1 },
  { name: "greedy", question: "Why?", date: "2026-11-22T20:07:42+00:00", model: "a-model", temperature: 0 },
  { name: "other", question: "How?", date: "2026-11-23T20:07:42+00:00", model: "a-model", temperature: 0 },
];

// What a press tells: the recordings, the sentences, and the words of chips whose press went on to the page. `came`:
// whether a recording gets to the stage.
function examples(words, came = true) {
  const told = [];
  const host = put(["button", { className: "example", textContent: words }]);
  host.addEventListener("click", ({ target }) => told.push(`live ${target.textContent}`));
  const say = (sentence) => told.push(sentence);
  const play = async (name) => Boolean(told.push(`play ${name}`)) && came;
  new Examples(CARDS, { play, say }).listen();
  return { told, chips: [...host.children] };
}

export const cases = {
  "one that does not come is not announced": async () => {
    const { told, chips } = examples("Why?", false);
    chips[0].click();
    await 0;
    return [told, ["play greedy"]];
  },
  "the first press plays what was recorded, the next one races": async () => {
    const { told, chips } = examples("Why?");
    chips[0].click();
    await 0;
    chips[0].click();
    await 0;
    return [
      [...told, chips[0].title],
      ["play greedy", "Recorded 2026-11-22. Press again to race live.", "live Why?", "Press again to race live"],
    ];
  },
  "what was not recorded races": async () => {
    const { told, chips } = examples("When?");
    chips[0].click();
    await 0;
    return [told, ["live When?"]];
  },
  "other settings race": () => [
    ["", "?q=Why%3F&__theme=light", "?autorun=1", "?lanes=vanilla,trie", "?q=a&seed=3"].map(hasDefaultSettings),
    [true, true, true, false, false],
  ],
};
