import { Pane } from "../../../specrace/ui/static/panes/pane.js";
import { PaneRow, speedupSoFar } from "../../../specrace/ui/static/panes/pane_row.js";
import { LANES, SERVED } from "./fixtures.js";

// A row of two panes, and the lanes that it reported as shown alone.
function drawRow() {
  const shown = [];
  const row = new PaneRow(document.createElement("div"), (lane) => shown.push(lane));
  row.show(LANES.slice(0, 2).map((method) => new Pane(method)));
  return { row, shown };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a press on a title shows one lane alone, and a second press all lanes": () => {
    const { row, shown } = drawRow();
    const away = () => row.panes.map((pane) => pane.node.classList.contains("away"));
    row.panes[1].solo.click();
    const alone = [away(), row.node.dataset.solo, row.panes[1].solo.getAttribute("aria-pressed")];
    row.panes[1].solo.click();
    return [
      [alone, [away(), row.node.dataset.solo], shown, row.node.dataset.count],
      [[[true, false], "1", "true"], [[false, false], ""], [undefined, 1, undefined], "2"],
    ];
  },
  "a lane that is shown alone has a button that leads back": () => {
    const { row, shown } = drawRow();
    const hidden = () => row.panes.map((pane) => pane.leave.hidden);
    const before = hidden();
    row.panes[1].solo.click();
    const alone = hidden();
    row.panes[1].leave.click();
    return [
      [before, alone, hidden(), shown],
      [
        [true, true],
        [true, false],
        [true, true],
        [undefined, 1, undefined],
      ],
    ];
  },
  "one size of letters fits the longest description, and only before there is a text": () => {
    const { row } = drawRow();
    document.body.append(row.node);
    for (const { text, hint } of row.panes) {
      text.style.cssText = "width: 200px; height: 110px; overflow: auto";
      hint.style.cssText = "margin: 0; font-size: var(--hint, 30px); line-height: 1.4";
      hint.textContent = "short";
    }
    const measure = () => {
      row.measure();
      return row.node.style.getPropertyValue("--hint");
    };
    const short = measure();
    row.panes[1].hint.textContent = "a description of six words or more";
    const long = measure();
    const fits = row.panes[1].text.scrollHeight <= row.panes[1].text.clientHeight;
    row.panes[1].hint.textContent = "endless ".repeat(99);
    // Not even the smallest letters fit.
    const longest = measure();
    for (const { hint } of row.panes) hint.hidden = true;
    const later = measure();
    row.node.remove();
    return [
      [short, parseFloat(long) > 15 && parseFloat(long) < 30, fits, longest, later],
      ["", true, true, "15px", ""],
    ];
  },
  "new panes are all shown": () => {
    const { row, shown } = drawRow();
    row.toggleSolo(0);
    row.show([new Pane(LANES[0])]);
    return [
      [row.node.children.length, row.node.dataset.solo, shown],
      [1, "", [undefined, 0, undefined]],
    ];
  },
  "the narrowest pane decides what all panes leave out": () => {
    const { row } = drawRow();
    const wide = document.createElement("div");
    document.body.append(wide);
    wide.append(row.node);
    wide.style.width = "900px";
    row.panes[0].node.style.width = "500px";
    row.measure();
    const narrow = row.node.dataset.narrow;
    row.toggleSolo(1);
    row.panes[0].node.hidden = true;
    row.measure();
    const alone = row.node.dataset.narrow;
    wide.remove();
    // A pane of 500 px is not wider than two of the widths at which panes leave something out.
    return [
      [narrow, alone],
      ["680 560", ""],
    ];
  },
  "words belong to the lane in whose pane they stand": () => {
    const { row } = drawRow();
    return [[row.panes[1].text, document.body].map((element) => row.laneOf(element)), [1, -1]];
  },
  "a step of vanilla changes all speedups, another step only its lane's": () => {
    const { row } = drawRow();
    const words = () => row.panes.map(({ speedup }) => speedup.textContent);
    row.panes[0].meters = { tokens: 8, tau: 1, tokens_per_s: 50 };
    row.panes[1].meters = { tokens: 8, tau: 3, tokens_per_s: 100 };
    row.showSpeedups(1);
    const later = words();
    row.showSpeedups(0);
    return [
      [later, words()],
      [
        ["–", "2.0×"],
        ["1.0×", "2.0×"],
      ],
    ];
  },
  "no speedup of few tokens, nor one that the tokens per step do not allow": () => {
    const base = { tokens: 8, tau: 1, tokens_per_s: 50 };
    const lanes = [undefined, { ...base, tokens: 7 }, { ...base, tokens_per_s: 500 }, { ...base, tokens_per_s: 55 }];
    return [lanes.map((meters) => speedupSoFar(meters, base)), [0, 0, 0, 1.1]];
  },
  "speedups with ranges change all heads, until a replay starts": () => {
    const { row } = drawRow();
    const rows = [1, 2].map((speedup) => ({ speedup, tokens_per_s: 9, badge: ["none", ""], end: "eos" }));
    const states = [row.node.dataset.ranges];
    row.conclude(
      rows,
      {
        runs: 5,
        lanes: [
          ["a", 1, 1],
          ["b", 1.9, 2.1],
        ],
      },
      [2, 1],
    );
    states.push(row.node.dataset.ranges, row.panes[1].range.textContent);
    row.clear();
    states.push(row.node.dataset.ranges, row.panes[1].range.textContent);
    return [states, ["false", "true", "1.9 to 2.1, 5 runs", "false", ""]];
  },
  "a phone shows the text of our last lane, and at the end that of the winner": () => {
    const row = new PaneRow(document.createElement("div"));
    row.show([...LANES.slice(0, 2), { lane: "fast", title: "Fast", served: SERVED }].map((method) => new Pane(method)));
    const featured = () => row.panes.findIndex(({ node }) => node.classList.contains("featured"));
    const before = featured();
    const rows = [1, 0.5].map((speedup) => ({ speedup, tokens_per_s: 9, badge: ["none", ""], end: "eos" }));
    row.conclude(rows, null, [1, 2]);
    return [
      [before, featured()],
      [1, 0],
    ];
  },
};
