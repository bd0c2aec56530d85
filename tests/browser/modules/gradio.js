import {
  canRace,
  redirectToasts,
  isUpload,
  limitLanes,
  markDefaultLanes,
  openSettings,
  setQuestion,
  showLanes,
  silenceClock,
  toggleSettings,
  uploadDocuments,
} from "../../../specrace/ui/static/gradio.js";
import { HOSTILE, put } from "./given.js";

export const cases = {
  "the clock gets no frame, all else does": () => {
    const kept = window.requestAnimationFrame;
    silenceClock();
    // As Gradio's minified script has it.
    const clock = { toString: () => "()=>{t=(performance.now()-e)/1e3}" };
    const asked = [requestAnimationFrame(clock), requestAnimationFrame(() => {})];
    window.requestAnimationFrame = kept;
    return [asked.map(Boolean), [false, true]];
  },
  "settings, where a page has them": () => {
    openSettings(true);
    const host = put(["p", {}]);
    host.id = "settings";
    toggleSettings();
    const first = host.dataset.open;
    toggleSettings();
    markDefaultLanes(["vanilla", "trie"]);
    markDefaultLanes(["other"]);
    const found = [first, host.dataset.open, host.dataset.lanes, isUpload(host.firstChild), isUpload(document.body)];
    host.remove();
    return [found, ["true", "false", "vanilla trie", true, false]];
  },
  "a question is told to Gradio": () => {
    const host = put(["textarea", {}]);
    host.id = "question";
    const heard = [];
    host.addEventListener("input", ({ target }) => heard.push(target.value));
    setQuestion(HOSTILE);
    setQuestion("");
    host.remove();
    setQuestion("nowhere");
    return [heard, [HOSTILE]];
  },
  "vanilla and five others": () => {
    const host = put(["section", { className: "stage" }]);
    const heard = [];
    for (const name of ["complain", "lanes"])
      host.firstChild.addEventListener(name, ({ detail }) => heard.push(detail));
    const found = [limitLanes(["trie", "rest"], 3), limitLanes(["vanilla", "a", "b", "c"], 3)];
    showLanes(found[0]);
    host.remove();
    return [
      [found, heard],
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
  "a toast's words are the stage's": async () => {
    const host = put(["section", { className: "stage" }]);
    const heard = [];
    host.firstChild.addEventListener("complain", ({ detail }) => heard.push(detail));
    redirectToasts();
    const toast = document.createElement("div");
    toast.append(Object.assign(document.createElement("p"), { textContent: `HTTP 429: ${HOSTILE}` }));
    toast.firstChild.dataset.testid = "toast-text";
    document.body.append(toast);
    await Promise.resolve();
    toast.remove();
    host.remove();
    return [heard, [HOSTILE]];
  },
  "documents go to the upload, cut where they are too large": () => {
    const host = put(["input", { type: "file", multiple: true }]);
    const files = new DataTransfer();
    for (const [name, size] of [
      ["small.md", 3],
      ["large.md", 2_500_000],
    ])
      files.items.add(new File(["x".repeat(size)], name));
    const before = uploadDocuments(files.files);
    host.id = "files";
    const after = uploadDocuments(files.files);
    const given = [...host.firstChild.files].map(({ name, size }) => [name, size]);
    host.remove();
    return [
      [before, after, given],
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
