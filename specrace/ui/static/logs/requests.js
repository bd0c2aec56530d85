// The requests of a scored log: lists of those on which a lane drafts best and worst, and one request in panes like
// those of a race, but without times.
/** @import { LogRequest, ScoredLog } from "../lib/wire.d.ts" */
import { CONSTANTS } from "../lib/constants.js";
import { button, closest, make } from "../lib/dom.js";
import { countOf } from "../lib/format.js";
import { withMethod, hueOf } from "../lib/lanes.js";
import { Pane } from "../panes/pane.js";
import { PaneRow } from "../panes/pane_row.js";

const MAX_LISTED = 5;
const ACCEPTED_SHOWN = CONSTANTS.accepted_shown;

/** @param {Pick<LogRequest, "id" | "number" | "category">} request */
export function nameRequest({ id, number, category }) {
  return `${id || `request ${number}`}${category === "none" ? "" : ` · ${category}`}`;
}

/**
 * The frames that a pane shows for a lane on a request, whose steps are [accepted, drafted, texts of rejected tokens].
 * @param {Pick<LogRequest, "lanes" | "texts" | "tokens" | "looping">} request
 * @param {number} laneIndex
 */
export function readFrames({ lanes, texts, tokens, looping }, laneIndex) {
  const sums = { accepted: 0, drafted: 0, tokens: 0, tau: 0, tokens_per_s: 0 };
  return lanes[laneIndex].map(([accepted, drafted, rejected], step) => {
    const start = sums.tokens;
    const hasOwn = start + accepted < tokens;
    const words = texts.slice(start, start + accepted);
    sums.accepted += accepted;
    sums.drafted += drafted;
    sums.tokens += accepted + Number(hasOwn);
    sums.tau = sums.tokens / (step + 1);
    const runs = accepted ? [["accepted", words.join(""), accepted]] : [];
    if (hasOwn) runs.push(["own", texts[start + accepted] ?? "", 1]);
    const draft = { step, drafted, accepted, accepted_texts: words.slice(-ACCEPTED_SHOWN), rejected };
    return { runs, meters: { ...sums }, badge: ["none", ""], draft, loops: looping, end: "" };
  });
}

/**
 * The requests with the most and the fewest tokens per step in a lane.
 * @param {LogRequest[]} requests
 * @param {number} laneIndex
 */
export function rankRequests(requests, laneIndex) {
  const ranked = [...requests].sort((a, b) => b.tau[laneIndex] - a.tau[laneIndex] || a.number - b.number);
  const best = ranked.slice(0, Math.min(MAX_LISTED, Math.ceil(ranked.length / 2)));
  return { best, worst: ranked.slice(best.length).slice(-MAX_LISTED).reverse() };
}

export class Requests {
  constructor() {
    this.node = make("section", "logs-requests");
    this.tabs = make("div", "lane-tabs");
    this.lists = make("div", "logs-lists");
    this.head = make("h3", "logs-request");
    this.facts = make("p", "logs-facts");
    this.prompt = make("p", "logs-prompt");
    this.prompt.tabIndex = 0;
    this.prompt.setAttribute("role", "region");
    this.prompt.setAttribute("aria-label", "End of the prompt");
    this.paneRow = new PaneRow(make("div", "panes"));
    const buttons = make("span", "walk");
    buttons.append(
      button("‹", "The request before", () => this.move(-1)),
      button("›", "The next request", () => this.move(1)),
    );
    this.bar = make("header");
    this.bar.append(this.head, buttons);
    this.node.append(
      make("h3", "", "Requests that draft best and worst"),
      this.tabs,
      this.lists,
      this.bar,
      this.facts,
      this.prompt,
      this.paneRow.node,
    );
  }

  // `laneIndex`: the lane by which requests are ranked at first.
  /**
   * @param {ScoredLog} scores
   * @param {number} laneIndex
   */
  load({ requests, lanes, outputs }, laneIndex) {
    this.requests = requests;
    this.lanes = lanes;
    this.outputs = outputs;
    this.tabs.replaceChildren(
      ...lanes.map((lane, index) => {
        const { title } = withMethod(lane);
        const tab = button(title, `Rank by ${title}`, () => this.rank(index));
        tab.dataset.hue = hueOf(lane);
        return tab;
      }),
    );
    this.rank(laneIndex);
    this.show(rankRequests(requests, laneIndex).best[0]);
  }

  rank(laneIndex) {
    [...this.tabs.children].forEach((tab, index) => tab.setAttribute("aria-pressed", String(index === laneIndex)));
    const { best, worst } = rankRequests(this.requests, laneIndex);
    this.lists.replaceChildren(this.drawList("Best", best, laneIndex), this.drawList("Worst", worst, laneIndex));
    this.markShown();
  }

  /**
   * @param {string} title
   * @param {LogRequest[]} requests
   * @param {number} laneIndex
   */
  drawList(title, requests, laneIndex) {
    const node = make("div");
    const list = make("ol");
    for (const request of requests) {
      const name = nameRequest(request);
      const open = button("", `Show ${name}`, () => this.show(request, true));
      open.dataset.number = String(request.number);
      open.append(make("span", "name", name), make("b", "", request.tau[laneIndex].toFixed(2)));
      const line = make("li");
      line.append(open);
      list.append(line);
    }
    node.append(make("h4", "", `${title}, tokens per step`), list);
    return node;
  }

  // Marks, in the lists, the request that is shown.
  markShown() {
    for (const open of this.lists.querySelectorAll("button"))
      open.setAttribute("aria-pressed", String(Number(open.dataset.number) === this.shown?.number));
  }

  move(by) {
    const next = this.requests[this.requests.indexOf(this.shown) + by];
    if (next) this.show(next);
  }

  // Shows a request. `scroll`: also scrolls to it, because the visitor chose it from a list.
  /**
   * @param {LogRequest} request
   * @param {boolean} [scroll]
   */
  show(request, scroll) {
    this.shown = request;
    this.markShown();
    const [back, next] = this.bar.querySelectorAll("button");
    back.disabled = request === this.requests[0];
    next.disabled = request === this.requests.at(-1);
    this.head.textContent = nameRequest(request);
    this.facts.textContent = this.describeRequest(request);
    this.prompt.textContent = request.prompt;
    const panes = this.lanes.map((lane, index) => this.drawPane(lane, request, index));
    this.paneRow.show(panes);
    // Show the end of the prompt, and the beginning of the output, whose scroll position is counted from its end.
    this.prompt.scrollTop = this.prompt.scrollHeight;
    for (const pane of panes) pane.text.scrollTop = -pane.text.scrollHeight;
    if (scroll) this.bar.scrollIntoView({ block: "start" });
  }

  /** @param {LogRequest} request */
  describeRequest({ number, prompt_tokens: prompt, tokens, texts }) {
    const kept = this.requests.length < this.outputs ? `; ${this.requests.length} of them are kept for this view` : "";
    const cut = texts.length < tokens ? ` The first ${texts.length} tokens are shown.` : "";
    return `Request ${number} of ${this.outputs}${kept}. ${countOf(prompt, "prompt token")}, of which the last are below, and ${countOf(tokens, "output token")}.${cut} Press words to see that step's draft.`;
  }

  /**
   * @param {{ lane: string }} lane
   * @param {LogRequest} request
   * @param {number} laneIndex
   */
  drawPane(lane, request, laneIndex) {
    const pane = new Pane(withMethod(lane));
    const frames = readFrames(request, laneIndex);
    frames.forEach((frame, step) => pane.apply(frame, () => {}, step, true));
    pane.tau.textContent = request.tau[laneIndex].toFixed(2);
    pane.settle();
    let current = frames.length - 1;
    const point = (step) => {
      if (!frames[step]) return;
      current = step;
      pane.outlineStep(step);
      pane.lastDraft = frames[step].draft;
      pane.settle();
    };
    pane.text.addEventListener("click", ({ target }) => point(Number(closest(target, "[data-step]")?.dataset.step)));
    pane.text.addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault();
      point(current + (event.key === "ArrowLeft" ? -1 : 1));
    });
    return pane;
  }
}
