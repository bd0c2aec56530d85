import { describeLane, hueOf, inOrder, learnMethods } from "../../../specrace/ui/static/lanes.js";

const METHOD = { lane: "trie", title: "Trie", hue: 3 };

export const cases = {
  "a lane that nobody knows": () => [
    [hueOf({ lane: "own" }), describeLane({ lane: "own" })],
    [7, { lane: "own" }],
  ],
  "a lane gets what its method says": () => {
    learnMethods([METHOD]);
    return [
      [hueOf({ lane: "trie" }), describeLane({ lane: "trie", options: 1 })],
      [3, { ...METHOD, options: 1 }],
    ];
  },
  "lanes in the order of the registry": () => {
    for (const lane of ["first", "second"]) learnMethods([{ lane, title: lane }]);
    return [inOrder(["second", "unknown", "first"]), [{ lane: "first" }, { lane: "second" }]];
  },
};
