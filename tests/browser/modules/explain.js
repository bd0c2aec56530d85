import { chooseCaption, Explainer } from "../../../specrace/ui/static/explanations/explain.js";

const SEEN = { name: "trie", title: "Trie", meters: { steps: 1, speedup: 1, tokens: 4, tau: 2 } };
// A span is [passage, start, end].
const ACCEPTED = { ...SEEN, draft: { drafted: 3, accepted: 2 }, spans: [[1, 0, 5]] };

// The keys of the captions that are chosen at these times, one after the other.
function choose(seen, times) {
  const shownAt = new Map();
  return times.map((now) => {
    const caption = chooseCaption(seen, shownAt, now);
    if (caption) shownAt.set(caption.key, now);
    return caption?.key;
  });
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a caption describes the last step": () => [
    chooseCaption({ ...SEEN, draft: { drafted: 1, accepted: 0 } }, new Map(), 0).words,
    "Trie proposed 1 token, the model accepted none: the step yields the model's own token.",
  ],
  "new captions come first, and some are repeated after a while": () => [
    choose(ACCEPTED, [0, 1, 2, 20_000, 20_001]),
    ["accepted", "copied", undefined, "accepted", "copied"],
  ],
  "other captions are shown once": () => [choose({ ...SEEN, loops: true }, [0, 1e6]), ["loops", undefined]],
  "the caption at the end says what the headline does not": () => {
    const explainer = new Explainer(document.createElement("div"));
    const vanilla = { title: "Vanilla", speedup: 1, tau: 1, accepted: 0, drafted: 0 };
    explainer.conclude([vanilla, { title: "Trie", speedup: 2.5, tau: 5, accepted: 30, drafted: 40 }]);
    return [
      explainer.node.textContent,
      "The model accepted 75 % of Trie's drafts; a step took 2.00 times as long as one of vanilla's, which yields one token.",
    ];
  },
  "a race whose figures do not count is over all the same": () => {
    const explainer = new Explainer(document.createElement("div"));
    explainer.conclude([]);
    explainer.toggle(true);
    const ended = explainer.node.textContent;
    explainer.begin(false);
    explainer.toggle(true);
    return [
      [ended, explainer.node.textContent],
      [
        "The race is over. Replay it, and watch how many words each lane writes at once.",
        "Each pane is one way of writing the same answer. Watch how many words appear at once.",
      ],
    ];
  },
  "no caption applies": () => [chooseCaption(SEEN, new Map(), 0), undefined],
};
