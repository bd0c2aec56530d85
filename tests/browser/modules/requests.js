import { nameRequest, rankRequests, readFrames, Requests } from "../../../specrace/ui/static/logs/requests.js";
import { HOSTILE, SHOWN } from "./fixtures.js";

// A request's lanes have steps, [accepted, drafted, texts of the rejected tokens]. In the first lane one step accepts
// all 5 tokens; in the second, two steps also have a token of the model's own.
const REQUEST = {
  number: 1,
  id: HOSTILE,
  category: HOSTILE,
  looping: false,
  tokens: 5,
  prompt_tokens: 3,
  tau: [5, 2.5],
  prompt: HOSTILE,
  texts: [" a", HOSTILE, " c", " d", " e"],
  lanes: [
    [[5, 5, []]],
    [
      [2, 3, [HOSTILE]],
      [1, 1, []],
    ],
  ],
};
const SCORES = {
  outputs: 2,
  lanes: [{ lane: "trie" }, { lane: "suffix" }],
  requests: [REQUEST, { ...REQUEST, number: 2, id: "", category: "none", tau: [1, 3] }],
};

function open() {
  const requests = new Requests();
  requests.load(SCORES, 0);
  return requests;
}

const numbers = ({ best, worst }) => [best, worst].map((list) => list.map(({ number }) => number));

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a request has a name": () => [SCORES.requests.map(nameRequest), [`${HOSTILE} · ${HOSTILE}`, "request 2"]],
  "the runs and drafts of a lane": () => [
    readFrames(REQUEST, 1).map(({ runs, draft }) => [runs, draft.drafted, draft.accepted, draft.rejected]),
    [
      [
        [
          ["accepted", ` a${HOSTILE}`, 2],
          ["own", " c", 1],
        ],
        3,
        2,
        [HOSTILE],
      ],
      [
        [
          ["accepted", " d", 1],
          ["own", " e", 1],
        ],
        1,
        1,
        [],
      ],
    ],
  ],
  "an output that ends within its accepted path has no token of the model": () => [
    readFrames(REQUEST, 0).map(({ runs, meters }) => [runs.length, runs[0][2], meters.tokens, meters.tau]),
    [[1, 5, 5, 5]],
  ],
  "steps after the cut have runs without text": () => [
    readFrames({ ...REQUEST, texts: [" a"] }, 1).map(({ runs }) => runs.map(([, text]) => text)),
    [
      [" a", ""],
      ["", ""],
    ],
  ],
  "the best requests, and the worst of the others": () => {
    const list = [3, 1, 2, 5, 4].map((tau, number) => ({ number, tau: [tau] }));
    const many = Array.from({ length: 30 }, (_, number) => ({ number, tau: [number] }));
    return [
      [numbers(rankRequests(list, 0)), numbers(rankRequests(many, 0)), numbers(rankRequests([list[0]], 0))],
      [
        [
          [3, 4, 0],
          [1, 2],
        ],
        [
          [29, 28, 27, 26, 25],
          [0, 1, 2, 3, 4],
        ],
        [[0], []],
      ],
    ];
  },
  "a request in the panes, as text": () => {
    const { node, paneRow, prompt } = open();
    const [first, second] = paneRow.node.querySelectorAll(".text p:last-child");
    return [
      [node.querySelectorAll("img, script").length, prompt.textContent, first.textContent, second.textContent],
      [0, HOSTILE, `a${SHOWN} c d e`, `a${SHOWN} c d e`],
    ];
  },
  "ranking by another lane changes the list, and a press shows a request": () => {
    const requests = open();
    const before = requests.head.textContent;
    requests.tabs.children[1].click();
    const [first] = requests.lists.querySelectorAll("button");
    first.click();
    return [
      [before, first.textContent, first.getAttribute("aria-pressed"), requests.head.textContent],
      // A button has the request's name and its tokens per step.
      [`${HOSTILE} · ${HOSTILE}`, "request 23.00", "true", "request 2"],
    ];
  },
  "buttons show the next and the previous request": () => {
    const requests = open();
    const [back, next] = requests.bar.querySelectorAll("button");
    const before = [back.disabled, next.disabled];
    next.click();
    return [
      [...before, requests.head.textContent, back.disabled, next.disabled],
      [true, false, "request 2", false, true],
    ];
  },
  "a click on words shows the draft of their step": () => {
    const panes = open().paneRow.node;
    const pane = panes.children[1];
    const at = () => [...pane.querySelectorAll(".at")].map((node) => node.textContent).join("");
    pane.querySelector('.run[data-step="0"]').click();
    const before = [at(), pane.querySelector(".draft-label").textContent, pane.querySelectorAll(".rejected").length];
    pane
      .querySelector(".text")
      .dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true, cancelable: true }));
    return [
      [...before, at(), pane.querySelector(".draft-label").textContent],
      [`a${SHOWN} c`, "✓ 2 of 3", 1, " d e", "✓ 1 of 1"],
    ];
  },
  "a lane can be shown alone": () => {
    const panes = open().paneRow.node;
    const away = () => [...panes.children].map((pane) => pane.classList.contains("away"));
    const solo = panes.children[1].querySelector(".solo");
    solo.click();
    const alone = [away(), panes.dataset.solo];
    solo.click();
    return [
      [...alone, away(), panes.dataset.solo],
      [[true, false], "1", [false, false], ""],
    ];
  },
};
