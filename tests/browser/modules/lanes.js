import { describeLanes, withMethod, hueOf, sortLanes, registerMethods } from "../../../specrace/ui/static/lib/lanes.js";

const METHOD = { lane: "trie", title: "Trie", hue: 3 };

// Each case returns [actual, expected], which test_modules.py compares.
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
  "a lane's title has the options in its name, unless the race says another": () => {
    registerMethods([METHOD]);
    const named = { lane: "trie:n=3:static=true" };
    return [
      [withMethod(named), withMethod({ ...named, title: "Trie (n=3)" }).title, hueOf(named)],
      [{ ...METHOD, ...named, title: "Trie (n=3, static=true)" }, "Trie (n=3)", "3"],
    ];
  },
  "lanes whose methods share a hue have different hues in a race": () => {
    registerMethods([
      { lane: "trie", title: "Trie", hue: 1 },
      { lane: "other", title: "Other", hue: 2 },
      { lane: "alike", title: "Alike", hue: 2 },
    ]);
    const lanes = ["trie", "trie:n=3", "other", "alike", "a server", "trie:n=5", "another server"];
    const rows = lanes.map((lane) => ({ lane }));
    describeLanes(rows);
    const inRace = rows.map(hueOf);
    describeLanes([{ lane: "trie:n=3" }]);
    // The first lane with a hue keeps it: 1, 2, and 7 for lanes without a method. The others get 3, 4, 5, 6 in order.
    return [
      [...inRace, hueOf({ lane: "trie:n=3" })],
      ["1", "3", "2", "4", "7", "5", "6", "1"],
    ];
  },
  "lanes in the order of the registry": () => {
    for (const lane of ["first", "second"]) registerMethods([{ lane, title: lane }]);
    return [
      sortLanes(["second:n=2", "second", "unknown", "first"]),
      [{ lane: "first" }, { lane: "second:n=2" }, { lane: "second" }],
    ];
  },
};
