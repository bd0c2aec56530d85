import { describeState, Voter } from "../../../specrace/ui/static/audience/voter.js";
import { HOSTILE, put } from "./fixtures.js";

// The phone's page.
function page() {
  const host = put(["p", { className: "question" }], ["h1", {}], ["div", {}], ["p", {}]);
  host.children[2].setAttribute("role", "group");
  host.children[3].setAttribute("role", "alert");
  return host;
}

// What the server tells a phone of the poll. A poll has a round for each race; 0: no race yet. `mine`: its vote.
const STATE = {
  round: 1,
  question: HOSTILE,
  hues: [0, 4],
  lanes: ["Vanilla", "Trie"],
  open: true,
  winner: null,
  counts: [0, 0],
  mine: null,
};

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a phone's heading in each state": () => [
    [
      { ...STATE, round: 0 },
      STATE,
      { ...STATE, mine: 1 },
      { ...STATE, open: false },
      { ...STATE, open: false, winner: 0 },
      { ...STATE, open: false, winner: 0, mine: 0 },
      { ...STATE, open: false, winner: 0, mine: 1 },
    ].map(describeState),
    [
      "Wait for the race on the stage.",
      "Who wins?",
      "You say: Trie. Another tap changes it.",
      "The votes are closed. Watch the stage.",
      "Vanilla won.",
      "Vanilla won. You were right.",
      "Vanilla won. You were wrong.",
    ],
  ],
  "a button for each lane": () => {
    const host = page();
    new Voter(host).draw({ ...STATE, lanes: [HOSTILE, "Trie"], mine: 1 });
    const buttons = [...host.querySelectorAll("button")];
    return [
      [
        host.firstChild.textContent,
        buttons.map((node) => [node.textContent, node.getAttribute("aria-pressed"), node.dataset.hue]),
      ],
      [
        HOSTILE,
        [
          [HOSTILE, "false", "0"],
          ["Trie", "true", "4"],
        ],
      ],
    ];
  },
  "the same buttons are used while others vote and in the next race": () => {
    const host = page();
    const voter = new Voter(host);
    const requests = [];
    voter.request = (path, body) => requests.push([path, body]);
    voter.draw(STATE);
    const before = [...host.querySelectorAll("button")];
    before[1].focus();
    voter.draw({ ...STATE, mine: 0, counts: [1, 1] });
    voter.draw({ ...STATE, round: 2, lanes: ["Vanilla", "Fusion", "Suffix"], counts: [0, 0, 0] });
    const after = [...host.querySelectorAll("button")];
    const titles = after.map((node) => node.textContent);
    after[1].click();
    voter.draw({ ...STATE, round: 3 });
    return [
      [
        before.every((node, index) => node === after[index]),
        document.activeElement === before[1],
        titles,
        requests,
        host.querySelectorAll("button").length,
      ],
      [true, true, ["Vanilla", "Fusion", "Suffix"], [["/vote", { round: 2, choice: 1 }]], 2],
    ];
  },
  "the buttons show the counts when the round is closed": () => {
    const host = page();
    new Voter(host).draw({ ...STATE, open: false, winner: 1, counts: [2, 3] });
    const buttons = [...host.querySelectorAll("button")];
    return [
      [
        buttons.map((node) => node.textContent),
        buttons.map((node) => node.disabled),
        buttons.map((node) => node.dataset.won),
      ],
      [
        ["Vanilla: 2", "Trie: 3"],
        [true, true],
        ["false", "true"],
      ],
    ];
  },
};
