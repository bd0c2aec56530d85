import { readStatus, showStatus } from "../../../specrace/ui/static/stage/status.js";
import { HOSTILE, put } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a page without a status element": () => [readStatus(), "failed"],
  "a ready server's number format and device, which a phone leaves out": () => {
    const host = put(["span", {}]);
    const text = "Ready: tiny, float32, cuda:0, 1,201 passages of your own documents";
    showStatus(host, JSON.stringify({ state: "ready", text }));
    host.remove();
    return [
      [host.textContent, host.querySelector(".ready").textContent, host.querySelector(".how").textContent],
      [text, "Ready: ", ", float32, cuda:0"],
    ];
  },
  "the status that the server sends": () => {
    const host = put(["span", {}]);
    host.className = "status";
    showStatus(host, undefined);
    const before = host.dataset.state;
    showStatus(host, JSON.stringify({ state: "ready", text: HOSTILE }));
    const read = readStatus();
    host.remove();
    return [
      [before, read, host.textContent, host.querySelectorAll("img").length],
      [undefined, "ready", HOSTILE, 0],
    ];
  },
};
