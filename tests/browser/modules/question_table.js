import { summarise } from "../../../specrace/ui/static/questions/question_figures.js";
import {
  describeSummary,
  describeTotal,
  drawTable,
  LEGEND,
} from "../../../specrace/ui/static/questions/question_table.js";
import { HOSTILE, listedRow } from "./fixtures.js";

const cells = (line) => [...line.children].map((cell) => [...cell.children].map((part) => part.textContent));

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a row for each question, a column for each lane": () => {
    const opened = [];
    const rows = [listedRow(2), listedRow(4, { identical: false }), undefined, { error: "Too long." }];
    const table = drawTable([HOSTILE, "How?", "Who?", "Where?"], rows, 2, (index) => opened.push(index));
    table.querySelectorAll("button").forEach((node) => node.click());
    const [first, second, third, fourth] = [...table.tBodies[0].rows];
    return [
      [
        cells(first),
        cells(second)[2],
        cells(third).slice(0, 1),
        cells(fourth).slice(0, 1),
        [first, second, third, fourth].map((line) => line.dataset.state),
        opened,
        table.querySelectorAll("img, script").length,
      ],
      [
        [
          ["1", HOSTILE],
          ["40 tokens/s", "1.00 a step · 0.10 s"],
          ["2.0×", "▼ worst", "3.00 a step · 0.10 s", "= identical"],
        ],
        ["4.0×", "▲ best", "3.00 a step · 0.10 s", "≠ differs"],
        [["3", "Who?", "racing …"]],
        [["4", "Where?", "Too long."]],
        ["raced", "raced", "racing", "failed"],
        [0, 1],
        0,
      ],
    ];
  },
  "a disturbed race is shown, and does not count": () => {
    const table = drawTable(["Why?"], [listedRow(2, { disturbed: true })], undefined, undefined);
    return [
      [cells(table.tBodies[0].rows[0])[0], table.tFoot],
      [["1", "Why?", "disturbed, does not count"], null],
    ];
  },
  "medians, and the ranges whose ends differ": () => {
    const [vanilla, trie] = summarise([listedRow(2), listedRow(4)]);
    return [
      [describeSummary(vanilla), describeSummary(trie)],
      [
        { main: "40 tokens/s", lines: ["1.00 a step", "0.10 s"] },
        {
          main: "3.0×",
          lines: ["2.0× to 4.0×", "3.00 a step", "0.10 s", "identical in 2 of 2"],
        },
      ],
    ];
  },
  "the table in a sentence": () => [
    [
      describeTotal([undefined]),
      describeTotal([listedRow(2)]),
      describeTotal([listedRow(2), listedRow(4, { identical: false })]),
      describeTotal([listedRow(0.9)]),
      LEGEND.length > 0,
    ],
    [
      "",
      "Trie is fastest: 2.0× vanilla, the median over 1 question. Every text that was compared is vanilla's.",
      "Trie is fastest: 3.0× vanilla, the median over 2 questions (2.0× to 4.0×). Trie differed from vanilla's text.",
      "No lane is faster than vanilla over 1 question. Every text that was compared is vanilla's.",
      true,
    ],
  ],
};
