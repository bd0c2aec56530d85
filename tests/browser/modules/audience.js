import { Audience, drawCode, originFor, describeRound } from "../../../specrace/ui/static/audience/audience.js";
import { put, ROWS } from "./fixtures.js";

const lanes = ["Vanilla", "Trie", "Fusion"];

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "the address under which phones reach the server": () => [
    [
      originFor({ hostname: "127.0.0.1", origin: "http://127.0.0.1:1" }, "http://192.0.2.7:1"),
      originFor({ hostname: "localhost", origin: "http://localhost:1" }, ""),
      originFor({ hostname: "a.test", origin: "https://a.test" }, "http://192.0.2.7:1"),
    ],
    ["http://192.0.2.7:1", "", "https://a.test"],
  ],
  "the split of the votes is secret until the round is closed": () => [
    [
      describeRound({ lanes, open: true, counts: [0, 0, 0], winner: null }),
      describeRound({ lanes, open: true, counts: [0, 1, 0], winner: null }),
      describeRound({ lanes, open: false, counts: [0, 1, 4], winner: null }),
      describeRound({ lanes, open: false, counts: [0, 1, 4], winner: 1 }),
      describeRound({ lanes, open: false, counts: [0, 0, 0], winner: 1 }),
    ],
    [
      "Audience: no votes yet.",
      "Audience: 1 vote.",
      "Audience: Fusion 4, Trie 1.",
      "Audience: Fusion 4, Trie 1. 1 of 5 guessed right.",
      "",
    ],
  ],
  "the first lane at the finish wins, unless the race has no figures": () => {
    const find = () => {
      const host = put(["button", { type: "button" }]);
      host.firstChild.dataset.do = "close";
      return host;
    };
    const stage = { node: put(), start: {}, panes: [], track: { winner: 0 }, find };
    const rounds = [];
    const audience = new Audience(stage, "");
    audience.state = { winner: null };
    audience.setRound = (open, winner) => rounds.push([open, winner]);
    // A race without figures, such as a disturbed one, ends with no rows.
    for (const rows of [ROWS, []]) stage.node.dispatchEvent(new CustomEvent("result", { detail: rows }));
    return [
      rounds,
      [
        [false, 0],
        [false, null],
      ],
    ];
  },
  "a poll that the server no longer has is closed": async () => {
    const host = put(["button", { type: "button" }], ["p", { className: "votes" }]);
    host.firstChild.dataset.do = "close";
    const closed = [];
    const dialog = Object.assign(host, { close: () => closed.push("closed") });
    const line = put();
    const errors = [];
    const find = (name) => (name === ".audience-line" ? line : dialog);
    const stage = { node: put(), start: {}, panes: [], track: {}, find, showError: (words) => errors.push(words) };
    const audience = new Audience(stage, "");
    const before = window.fetch;
    // A failure, after which the poll stays, and then the answer that there is no such poll.
    const answers = [500, 400];
    window.fetch = async () => ({ ok: false, status: answers.shift(), json: async () => ({ error: "Gone." }) });
    audience.poll = { key: "k", code: "c" };
    try {
      await audience.setRound(true);
      const after = Boolean(audience.poll);
      await audience.setRound(true);
      return [
        [after, audience.poll, errors.length, closed, line.hidden],
        [true, undefined, 1, ["closed"], true],
      ];
    } finally {
      window.fetch = before;
    }
  },
  // The quiet zone is a border of 4 squares.
  "a QR code with its quiet zone": () => {
    const picture = drawCode(["101", "010", "111"]);
    return [
      [picture.getAttribute("viewBox"), picture.querySelector("path").getAttribute("d")],
      ["0 0 11 11", "M4 4h1v1h-1zM6 4h1v1h-1zM5 5h1v1h-1zM4 6h1v1h-1zM5 6h1v1h-1zM6 6h1v1h-1z"],
    ];
  },
  "a poll holds the start of a race, and the next race's phones do not show the last winner": async () => {
    const find = () => put(["button", { type: "button" }]);
    const stage = { node: put(), start: {}, panes: [], track: {}, find };
    stage.find = () => {
      const host = find();
      host.firstChild.dataset.do = "close";
      return host;
    };
    const audience = new Audience(stage, "");
    const held = [stage.start.isVoteOpen()];
    audience.poll = { key: "k", code: "c" };
    held.push(stage.start.isVoteOpen());
    const rounds = [];
    audience.setRound = (open) => rounds.push(open);
    stage.node.dispatchEvent(new CustomEvent("requested"));
    return [
      [held, rounds],
      [[false, true], [true]],
    ];
  },
};
