import {
  captionsOf,
  chooseBest,
  chooseFailed,
  compareTimes,
  makeScenes,
  rankLanes,
} from "../../../specrace/ui/static/explanations/scenes.js";
import { REEL } from "./small_race.js";

const [best, failed] = makeScenes(REEL);
// A step after which the text reached its limit.
const cutOff = { ...best, bonus: undefined };

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "lanes that drafted, the fastest first": () => [rankLanes(REEL), [1, 2]],
  "the best step and a failed step": () => [
    [best, failed].map((scene) => [scene.lane, scene.step, scene.drafted, scene.accepted, scene.emitted]),
    [
      ["trie", 2, 4, 2, 3],
      ["lookahead", 2, 2, 0, 1],
    ],
  ],
  "among equal steps one that copied from a passage is chosen": () => {
    const plain = { ...REEL.steps[5], index: 0, frame: { runs: [] } };
    return [chooseBest({ ...REEL, steps: [plain, ...REEL.steps] }, 1).index, 1];
  },
  "the winner's failure is chosen before another lane's": () => {
    const winners = { ...REEL.steps[7], lane: 1, index: 9 };
    return [chooseFailed({ ...REEL, steps: [...REEL.steps, winners] }, [1, 2]).index, 9];
  },
  "a failed draft of several tokens is chosen before one of a single token or with a control token": () => {
    const failedStep = (index, pieces) => ({
      ...REEL.steps[7],
      index,
      event: { ...REEL.steps[7].event, pieces, tree: { tokens: pieces, parents: pieces.map((_, node) => node - 1) } },
    });
    const steps = [
      failedStep(3, ["The", " a"]),
      failedStep(4, ["The", " a", " b"]),
      failedStep(5, ["The", " a", " b", "<|im_end|>"]),
    ];
    return [chooseFailed({ ...REEL, steps }, [2]).index, 4];
  },
  "the text before the step, and the text that the step adds": () => [
    [best.written, best.pending, best.run.map(({ text }) => text), best.bonus],
    [[], "The", [" cat", " sat"], " on"],
  ],
  "the time of the step and of single steps for as many tokens": () => [
    [compareTimes(best), compareTimes(failed)],
    [
      [
        ["This step: 20 ms for 3 tokens", 20],
        ["One at a time: 3 × 10.0 ms = 30 ms", 30],
      ],
      [
        ["This step: 15 ms for 1 token", 15],
        ["Vanilla: 10.0 ms for 1 token", 10],
      ],
    ],
  ],
  "a caption for each phase": () => [
    [captionsOf(best), captionsOf(failed)],
    [
      [
        "What comes next? Trie drafts from passage 1, “On cats”.",
        "4 draft tokens, in a tree. None is verified yet.",
        "One pass of the model reads all 4 at once and predicts its own token after each.",
        "2 match what the model predicts: accepted. The rest is rejected, and the model adds one token.",
        "3 tokens in the time of 2.0 single steps.",
      ],
      [
        "What comes next? Lookahead drafts from its n-gram pool.",
        "2 draft tokens, one after the other. None is verified yet.",
        "One pass of the model reads both at once and predicts its own token after each.",
        "The model predicts “cat” instead: both are rejected. The step yields that one token.",
        "A rejected draft costs time, here 5.0 ms. It never costs a wrong token.",
      ],
    ],
  ],
  "a step that took longer than it saved says so": () => [
    captionsOf({ ...best, stepMs: 40 })[4],
    "3 tokens in the time of 4.0 single steps. This draft did not pay.",
  ],
  "a step cut off by the length limit has no token of the model": () => [captionsOf(cutOff)[3].includes("adds"), false],
  "without drafts there are no scenes": () => [makeScenes({ ...REEL, results: REEL.results.slice(0, 1) }), []],
};
