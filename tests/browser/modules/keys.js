import { closeMenu, entryKey, leaveField, remoteKey, usesKey } from "../../../specrace/ui/static/stage/keys.js";
import { put } from "./fixtures.js";

const host = put(["input", {}], ["input", { type: "range" }], ["input", { type: "radio" }], ["button", {}], ["p", {}]);
const [field, slider, choice, button, paragraph] = host.children;
const player = put(["input", { type: "range" }]);
player.className = "player";
const time = player.firstChild;
const wide = scroller("200px");
const narrow = scroller("50px");

// A region 100 px wide, with a paragraph of this width.
function scroller(width) {
  const box = put(["p", {}]);
  box.className = "scroller";
  Object.assign(box.style, { width: "100px", overflowX: "auto" });
  box.firstChild.style.width = width;
  return box;
}

// The elements that use a key themselves when they have the focus.
function usersOf(key) {
  return Object.entries({ field, slider, choice, button, paragraph, time, wide, narrow }).flatMap(([name, target]) =>
    usesKey({ target, key }) ? [name] : [],
  );
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "text fields use letters": () => [usersOf("r"), ["field"]],
  "a press elsewhere and Escape close the menu": () => {
    const nav = put(["details", { open: true, innerHTML: "<summary>More</summary><button>Dark</button>" }]);
    nav.className = "menu";
    const [summary, dark] = nav.firstChild.children;
    const states = [summary, dark, dark].map((target) => [closeMenu(target), nav.firstChild.open]);
    nav.remove();
    return [
      states,
      [
        [true, true],
        [true, false],
        [false, false],
      ],
    ];
  },
  "in stage view a remote's keys are arrows": () => {
    const keys = ["bench", "stage"].map((view) => {
      document.body.dataset.view = view;
      return ["PageUp", "PageDown", "r"].map(remoteKey);
    });
    delete document.body.dataset.view;
    return [
      keys,
      [
        ["PageUp", "PageDown", "r"],
        ["ArrowLeft", "ArrowRight", "r"],
      ],
    ];
  },
  "fields and buttons give the keys back to the stage": () => {
    const node = put();
    node.tabIndex = -1;
    const returned = [field, button, paragraph].map((target) => {
      target.focus();
      leaveField({ node }, target);
      const stageHasFocus = document.activeElement === node;
      node.blur();
      return stageHasFocus;
    });
    return [returned, [true, true, false]];
  },
  "no element uses Escape": () => [usersOf("Escape"), []],
  "text fields, choices and buttons use the space bar": () => [usersOf(" "), ["field", "choice", "button"]],
  "text fields, choices, sliders of settings and wide regions use arrow keys": () => [
    usersOf("ArrowLeft"),
    ["field", "slider", "choice", "wide"],
  ],
  // A race has at most 6 lanes.
  "the keys of all lanes have one name": () => [["1", "6", "7", "r"].map(entryKey), ["1", "1", "7", "r"]],
};
