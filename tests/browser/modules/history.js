import { describeBest, History } from "../../../specrace/ui/static/stage/history.js";
import { send } from "../../../specrace/ui/static/lib/stage_events.js";
import { HOSTILE, put, ROWS } from "./fixtures.js";

const race = (question, more = {}) => ({
  head: { question },
  results: ROWS,
  phase: "finished",
  pace: null,
  repeated: null,
  ...more,
});

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the fastest lane in words": () => [
    [
      describeBest(race("Why?")),
      describeBest(race("Why?", { results: ROWS.slice(0, 1) })),
      describeBest(race("Why?", { pace: { disturbed: true } })),
    ],
    ["Trie: 2.5× vanilla", "no lane is faster than vanilla", "disturbed, does not count"],
  ],
  "live races are listed, the latest first, and open again": () => {
    const stage = document.createElement("div");
    const [section] = put(["section", { hidden: true }]).children;
    const shelf = section.appendChild(document.createElement("div"));
    shelf.className = "shelf";
    const opened = [];
    const history = new History(
      stage,
      section,
      (reel) => opened.push(reel.head.question),
      () => new Date(2026, 0, 2, 3, 4),
    );
    const run = (reel, live = true) => {
      send(stage, "begun", { live });
      send(stage, "reel", reel);
    };
    run(race("A replay"), false);
    const before = history.section.hidden;
    run(race(HOSTILE));
    run(race("Stopped", { phase: "stopped" }));
    const last = race("Why?");
    run(last);
    last.results = [ROWS[0], { ...ROWS[1], speedup: 3 }];
    send(stage, "figures", last.results);
    shelf.firstElementChild.click();
    const texts = [...shelf.children].map((card) => [...card.children].map((part) => part.textContent));
    for (let index = 0; index < 20; index++) run(race(`${index}`));
    return [
      [before, texts, opened, section.hidden, shelf.children.length, section.querySelectorAll("img, script").length],
      [
        true,
        [
          ["Why?", "Trie: 3.0× vanilla", "raced at 03:04"],
          [HOSTILE, "Trie: 2.5× vanilla", "raced at 03:04"],
        ],
        ["Why?"],
        false,
        20,
        0,
      ],
    ];
  },
};
