import {
  canRace,
  isUpload,
  markDefaultLanes,
  openSettings,
  setQuestion,
  silenceClock,
  toggleSettings,
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
  "a page that only replays": () => [canRace(), false],
};
