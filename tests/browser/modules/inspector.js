import {
  describeServed,
  describeStep,
  findLongest,
  Inspector,
} from "../../../specrace/ui/static/inspector/inspector.js";
import { EVENT, LANES, put, ROWS, SHORT_EVENT, SERVED, STEPS, UNMARKED, UNTOKENIZED, CHUNK } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a step in words": () => [
    describeStep(EVENT, "Trie", 1500),
    "Trie drafted 4, the model accepted 2: 3 tokens in 4.0 ms. Race time 1.50 s.",
  ],
  "a step without a draft": () => [
    describeStep({ ...SHORT_EVENT, tree: { tokens: [7], parents: [-1] }, verdict: { path: [0] } }, "Vanilla", 0),
    "Vanilla drafted nothing: 1 token in 4.0 ms. Race time 0.00 s.",
  ],
  "a step of an earlier race is not drawn": () => {
    const stage = put();
    const inspector = new Inspector(stage, { playing: false });
    const send = (name, detail) => stage.dispatchEvent(new CustomEvent(name, { detail }));
    const { setTimeout, clearTimeout } = window;
    // The timers that are set and not cleared, by their number.
    const waiting = new Map();
    let number = 0;
    window.setTimeout = (run) => waiting.set(++number, run) && number;
    window.clearTimeout = (timer) => waiting.delete(timer);
    send("opened", LANES);
    send("steps", STEPS);
    // The first step is drawn now, the second one later.
    inspector.show(0, 0, true);
    inspector.show(0, 1);
    const before = waiting.size;
    const { empty, step } = inspector.node.dataset;
    send("opened", LANES);
    Object.assign(window, { setTimeout, clearTimeout });
    return [
      [before, waiting.size, empty, step, inspector.node.dataset.empty, inspector.node.dataset.step],
      [1, 0, "false", "0", "true", undefined],
    ];
  },
  "the longest step of the fastest lane": () => {
    const steps = [{ event: SHORT_EVENT }, { event: EVENT }, { event: EVENT }];
    return [findLongest([{ steps: [] }, { steps }], ROWS), { lane: 1, step: 1 }];
  },
  "a server's step in words invents no rejected token": () => {
    const step = { ...EVENT, tree: { tokens: [7, 1, 2], parents: [-1, 0, 1] } };
    const fast = { lane: "fast", title: "Fast", served: SERVED };
    return [
      [
        describeServed({ ...step, drafted: 4 }, fast, 1500),
        describeServed(step, fast, 1500),
        describeServed(step, { ...fast, served: UNMARKED }, 1500),
        describeServed(CHUNK, { ...fast, served: UNTOKENIZED }, 1500),
      ],
      [
        "Fast drafted 4, its model accepted 2: 3 tokens. A server does not send rejected tokens, so the tree lacks them. Measured on fast: 1.50 s after its first chunk.",
        "Fast accepted 2 draft tokens and does not say how many it drafted: 3 tokens. A server does not send rejected tokens, so the tree lacks them. Measured on fast: 1.50 s after its first chunk.",
        "One token as Fast streamed it; its steps and drafts are not known, for it streams token by token. Measured on fast: 1.50 s after its first chunk.",
        "A chunk of text as Fast streamed it: “ cat sat”. Its tokens, steps and drafts are not known, for its stream is text. Measured on fast: 1.50 s after its first chunk.",
      ],
    ];
  },
};
