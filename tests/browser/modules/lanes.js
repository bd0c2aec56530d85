import { describeLane, hueOf, inOrder, learnMethods } from "../../../specrace/ui/static/lib/lanes.js";

const METHOD = { lane: "trie", title: "Trie", hue: 3 };

export const cases = {
  "an unknown lane has the last hue and no title": () => [
    [hueOf({ lane: "own" }), describeLane({ lane: "own" })],
    ["7", { lane: "own" }],
  ],
  "a lane gets its method's title and hue": () => {
    learnMethods([METHOD]);
    return [
      [hueOf({ lane: "trie" }), describeLane({ lane: "trie", options: 1 })],
      ["3", { ...METHOD, options: 1 }],
    ];
  },
  "lanes in the order of the registry": () => {
    for (const lane of ["first", "second"]) learnMethods([{ lane, title: lane }]);
    return [inOrder(["second", "unknown", "first"]), [{ lane: "first" }, { lane: "second" }]];
  },
};
