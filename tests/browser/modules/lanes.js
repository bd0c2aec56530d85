import { withMethod, hueOf, sortLanes, registerMethods } from "../../../specrace/ui/static/lib/lanes.js";

const METHOD = { lane: "trie", title: "Trie", hue: 3 };

export const cases = {
  "an unknown lane has the last hue and no title": () => [
    [hueOf({ lane: "own" }), withMethod({ lane: "own" })],
    ["7", { lane: "own" }],
  ],
  "a lane gets its method's title and hue": () => {
    registerMethods([METHOD]);
    return [
      [hueOf({ lane: "trie" }), withMethod({ lane: "trie", options: 1 })],
      ["3", { ...METHOD, options: 1 }],
    ];
  },
  "lanes in the order of the registry": () => {
    for (const lane of ["first", "second"]) registerMethods([{ lane, title: lane }]);
    return [sortLanes(["second", "unknown", "first"]), [{ lane: "first" }, { lane: "second" }]];
  },
};
