import {
  canRace,
  redirectToasts,
  isUpload,
  limitLanes,
  markDefaultLanes,
  nextQuestion,
  openSettings,
  pressListed,
  pressRecommended,
  raceRecommended,
  setQuestion,
  showAsked,
  showLanes,
  ignoreLoadingTimer,
  takeRecommended,
  toggleSettings,
  uploadDocuments,
} from "../../../specrace/ui/static/lib/gradio.js";
import { HOSTILE, put } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "only Gradio's timer gets no animation frame": () => {
    const originalRequest = window.requestAnimationFrame;
    ignoreLoadingTimer();
    // The timer's source in Gradio's minified script.
    const timer = { toString: () => "()=>{t=(performance.now()-e)/1e3}" };
    const frames = [requestAnimationFrame(timer), requestAnimationFrame(() => {})];
    window.requestAnimationFrame = originalRequest;
    return [frames.map(Boolean), [false, true]];
  },
  "settings, if the page has them": () => {
    openSettings(true);
    const host = put(["p", {}]);
    host.id = "settings";
    toggleSettings();
    const opened = host.dataset.open;
    toggleSettings();
    markDefaultLanes(["vanilla", "trie"]);
    markDefaultLanes(["other"]);
    const uploads = [host.firstChild, document.body].map(isUpload);
    const state = [opened, host.dataset.open, host.dataset.lanes, ...uploads];
    host.remove();
    return [state, ["true", "false", "vanilla trie", true, false]];
  },
  "setting a question notifies Gradio": () => {
    const host = put(["textarea", {}]);
    host.id = "question";
    const values = [];
    host.addEventListener("input", ({ target }) => values.push(target.value));
    setQuestion(HOSTILE);
    setQuestion("");
    host.remove();
    setQuestion("nowhere");
    return [values, [HOSTILE]];
  },
  "the question of the shown race is a heading, as text, on a page that has one": () => {
    showAsked("nowhere");
    const host = put(["h2", {}]);
    host.id = "asked";
    const shown = [HOSTILE, null, " "].map((question) => {
      showAsked(question);
      const { textContent, title, hidden, childElementCount } = host.querySelector("h2");
      return [textContent, title, hidden, childElementCount];
    });
    host.remove();
    return [
      shown,
      [
        [HOSTILE, HOSTILE, false, 0],
        ["", "", true, 0],
        [" ", " ", true, 0],
      ],
    ];
  },
  // A list of questions presses one button to race its next question, with the values that a function returns, and the
  // other one, without a function, to have questions suggested.
  "the hidden buttons of lists": () => {
    const host = put(["button", { id: "race-listed" }], ["button", { id: "suggest-listed" }]);
    const calls = [];
    host.addEventListener("click", ({ target }) => {
      calls.push(target.id === "race-listed" ? nextQuestion(["typed", null]) : target.id);
    });
    pressListed(([, files]) => ["listed", files]);
    pressListed(undefined);
    host.remove();
    return [calls, [["listed", null], "suggest-listed"]];
  },
  "recommended settings are set, and the question is raced": () => {
    const host = put(["button", { id: "race" }], ["button", { id: "race-recommended" }], ["textarea", {}]);
    host.className = "stage";
    host.id = "question";
    const calls = [];
    host.addEventListener("click", ({ target }) => calls.push(target.id));
    host.addEventListener("problem", ({ detail }) => calls.push(detail));
    pressRecommended({ lane: "trie", num_draft: 7, options: { n: 3 } });
    calls.push(takeRecommended());
    raceRecommended();
    setQuestion("Why?");
    raceRecommended();
    host.remove();
    return [
      calls,
      [
        "race-recommended",
        '{"method":"trie","num_draft":7,"options":{"n":3}}',
        "The settings are set; type a question, then press Race.",
        "race",
      ],
    ];
  },
  "vanilla always runs, and too many lanes are refused": () => {
    const host = put(["section", { className: "stage" }]);
    const details = [];
    for (const name of ["problem", "lanes"])
      host.firstChild.addEventListener(name, ({ detail }) => details.push(detail));
    const lanes = [limitLanes(["trie", "rest"], 3), limitLanes(["vanilla", "a", "b", "c"], 3)];
    showLanes(lanes[0]);
    host.remove();
    return [
      [lanes, details],
      [
        [
          ["vanilla", "trie", "rest"],
          ["vanilla", "a", "b"],
        ],
        [
          "Vanilla always runs: it is the baseline.",
          "At most 3 lanes fit; untick one first.",
          ["vanilla", "trie", "rest"],
        ],
      ],
    ];
  },
  "the stage shows the text of a toast": async () => {
    const host = put(["section", { className: "stage" }]);
    const complaints = [];
    host.firstChild.addEventListener("problem", ({ detail }) => complaints.push(detail));
    redirectToasts();
    const toast = document.createElement("div");
    toast.append(Object.assign(document.createElement("p"), { textContent: `HTTP 429: ${HOSTILE}` }));
    toast.firstChild.dataset.testid = "toast-text";
    document.body.append(toast);
    await Promise.resolve();
    toast.remove();
    host.remove();
    return [complaints, [HOSTILE]];
  },
  "documents go to the upload, and large ones are cut one byte above the limit": () => {
    const host = put(["input", { type: "file", multiple: true }]);
    const files = new DataTransfer();
    // The limit is 2 MB.
    for (const [name, size] of [
      ["small.md", 3],
      ["large.md", 2_500_000],
    ])
      files.items.add(new File(["x".repeat(size)], name));
    const before = uploadDocuments(files.files);
    host.id = "files";
    const after = uploadDocuments(files.files);
    const uploaded = [...host.firstChild.files].map(({ name, size }) => [name, size]);
    host.remove();
    return [
      [before, after, uploaded],
      [
        false,
        true,
        [
          ["small.md", 3],
          ["large.md", 2_000_001],
        ],
      ],
    ];
  },
  "a page that only replays": () => [canRace(), false],
};
