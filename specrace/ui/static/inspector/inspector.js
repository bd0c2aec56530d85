// The step inspector: the draft tree of one step, its attention mask, its times, and its drafter's details.
/** @import { NoteRow, ResultRow, ShownLane, Step, Timing } from "../lib/wire.d.ts" */
/** @import { ReadStep } from "../stage/reel.js" */
import { button, closest, make, table } from "../lib/dom.js";
import { countOf, formatSeconds } from "../lib/format.js";
import { hasTokens, hueOf } from "../lib/lanes.js";
import { visibleText } from "../lib/pieces.js";
import { listen, send } from "../lib/stage_events.js";
import { drawMask } from "./mask.js";
import { TIME_PARTS } from "../lib/tooltips.js";
import { chip, drawChecks, drawNoteRows, drawTrajectory, GROUP_WORDS } from "./notes.js";
import { drawPreview } from "./preview.js";
import { NODE_PX, NODE_WORDS, Tree } from "./tree.js";

// The shortest time between two drawings of the tree during a replay.
const TREE_PERIOD_MS = 250;
// The largest width of the fade at the tree's edges.
const FADE_PX = 36;
const NO_STEP = "Every step of every lane: its draft tree, what the model accepted, and where the time went.";

/**
 * A lane, the number of its `tokens` so far, and its steps: the event, the race time at its end, and the number of
 * tokens before it.
 * @typedef {ShownLane & { tokens: number, steps: { event: Step, at: number, tokensBefore: number }[] }} LaneSteps
 */

// A bar that shows how a step's time is divided, and its legend.
/** @param {Timing} timing */
function drawTimes(timing) {
  const total = TIME_PARTS.reduce((sum, [part]) => sum + timing[part], 0);
  const bar = make("div", "split");
  const keys = make("p", "split-keys");
  for (const [part, name, title] of TIME_PARTS) {
    const segment = make("i", part, undefined, `${name}: ${timing[part].toFixed(3)} ms. ${title}`);
    segment.style.flexGrow = String(total ? timing[part] / total : 0);
    bar.append(segment);
    const key = make("span", "", undefined, title);
    key.append(make("i", part), `${name} ${timing[part].toFixed(2)} ms`);
    keys.append(key);
  }
  const node = make("div");
  node.append(bar, keys);
  return node;
}

/**
 * Two sentences about what happened in a step.
 * @param {Step} event
 * @param {string} title
 * @param {number} at the race time at its end, in ms
 */
export function describeStep(event, title, at) {
  const drafted = event.tree.tokens.length - 1;
  const accepted = Math.min(event.verdict.path.length - 1, event.emitted.length);
  const wrote = countOf(event.emitted.length, "token");
  const draft = drafted ? `${title} drafted ${drafted}, the model accepted ${accepted}` : `${title} drafted nothing`;
  const took = TIME_PARTS.reduce((sum, [part]) => sum + event.timing[part], 0);
  return `${draft}: ${wrote} in ${took.toFixed(1)} ms. Race time ${formatSeconds(at)}.`;
}

/**
 * What is known of a server's step, in a sentence or two.
 * @param {Step} event
 * @param {ShownLane} lane
 * @param {number} at the time at its end since the first chunk, in ms
 */
export function describeServed(event, { lane, title, served }, at) {
  const when = `Measured on ${lane}: ${formatSeconds(at)} after its first chunk.`;
  if (!hasTokens({ served })) {
    const text = visibleText(event.texts.join(""));
    return `A chunk of text as ${title} streamed it: “${text}”. Its tokens, steps and drafts are not known, for ${served.note}. ${when}`;
  }
  if (!served.chunks_are_steps)
    return `One token as ${title} streamed it; its steps and drafts are not known, for ${served.note}. ${when}`;
  const accepted = Math.min(event.verdict.path.length - 1, event.emitted.length);
  const wrote = countOf(event.emitted.length, "token");
  const draft = event.drafted
    ? `${title} drafted ${event.drafted}, its model accepted ${accepted}`
    : `${title} ${event.drafted === 0 ? "drafted nothing" : `accepted ${countOf(accepted, "draft token")} and does not say how many it drafted`}`;
  const lacks = event.drafted === accepted ? "" : " A server does not send rejected tokens, so the tree lacks them.";
  return `${draft}: ${wrote}.${lacks} ${when}`;
}

/**
 * The step to show first: the fastest lane's step that wrote the most tokens.
 * @param {LaneSteps[]} lanes
 * @param {ResultRow[]} results
 */
export function findLongest(lanes, results) {
  const indexOfMax = (list, sizeOf) =>
    list.reduce((best, item, index) => (sizeOf(item) > sizeOf(list[best]) ? index : best), 0);
  const lane = indexOfMax(results, (row) => row.speedup);
  return { lane, step: indexOfMax(lanes[lane].steps, ({ event }) => event.emitted.length) };
}

export class Inspector {
  // `stage` is the element that sends the events of races; `player` knows whether a replay is playing.
  constructor(stage, player) {
    this.stage = stage;
    this.player = player;
    /** @type {LaneSteps[]} */
    this.lanes = [];
    /** @type {ResultRow[]} */
    this.results = [];
    this.current = { lane: 0, step: 0 };
    this.node = make("section", "inspector");
    this.node.setAttribute("aria-label", "Step inspector");
    this.node.dataset.empty = "true";
    const head = make("header");
    // In stage view the inspector covers the panes, so it needs a button that closes it.
    const close = make("button", "small-button", "Close", "Close (Esc)");
    close.type = "button";
    close.dataset.do = "steps";
    this.tabs = make("div", "lane-tabs");
    this.tabs.setAttribute("role", "group");
    this.tabs.setAttribute("aria-label", "Lane");
    this.back = button("‹", "Step back", () => this.seek(this.current.step - 1));
    this.next = button("›", "Step forwards", () => this.seek(this.current.step + 1));
    this.place = make("b", "place");
    const buttons = make("div", "walk");
    buttons.append(this.back, this.place, this.next);
    head.append(make("h2", "", "One step"), close, this.tabs, buttons);
    this.words = make("p", "words", NO_STEP);
    this.tree = make("div", "tree scroller");
    this.more = make("p", "more-nodes");
    this.rest = make("div", "rest");
    this.tree.tabIndex = 0;
    this.tree.setAttribute("role", "region");
    this.tree.setAttribute("aria-label", "Draft tree of the step");
    this.tree.addEventListener("scroll", () => this.fadeEdges(), { passive: true });
    new ResizeObserver(() => this.fadeEdges()).observe(this.tree);
    this.node.append(head, this.words, this.tree, this.more, this.drawLegend(), this.rest);
    this.node.addEventListener("pointerover", (event) => this.highlight(closest(event.target, "[data-node]")));
    listen(stage, "opened", (lanes) => this.setLanes(lanes));
    listen(stage, "steps", (steps) => this.addSteps(steps));
    listen(stage, "reel", ({ results }) => (this.results = results));
    listen(stage, "result", () => this.showLongest());
    listen(stage, "cursor", ({ lane, step }) => this.follow(lane, step));
    new IntersectionObserver(([{ isIntersecting }]) => (this.visible = isIntersecting)).observe(this.node);
  }

  // Fades the edges of the tree beyond which it continues, because not every browser shows a scroll bar.
  fadeEdges() {
    const { scrollLeft, scrollTop, scrollWidth, scrollHeight, clientWidth, clientHeight, style } = this.tree;
    const hidden = {
      left: scrollLeft,
      right: scrollWidth - clientWidth - scrollLeft,
      top: scrollTop,
      bottom: scrollHeight - clientHeight - scrollTop,
    };
    for (const [edge, px] of Object.entries(hidden)) style.setProperty(`--fade-${edge}`, `${Math.min(px, FADE_PX)}px`);
  }

  drawLegend() {
    const node = make("p", "tree-legend");
    for (const [kind, text] of [
      ["accepted", "accepted"],
      ["rejected", "rejected"],
      ["unverified", "never reached"],
      ["bonus", "model's own"],
    ]) {
      node.append(chip(text, kind, "", NODE_WORDS[kind]));
    }
    node.append(make("span", "", "Under a token: how often the drafter had seen it there, or its probability."));
    return node;
  }

  // Begins a race, of which no step is shown yet. Chooses the same lane as before if it takes part, else the last one.
  /** @param {ShownLane[]} lanes */
  setLanes(lanes) {
    // A step of the previous race may still wait to be drawn.
    clearTimeout(this.timer);
    const previous = lanes.findIndex((lane) => lane.lane === this.node.dataset.lane);
    this.current = { lane: previous < 0 ? lanes.length - 1 : previous, step: 0 };
    this.lanes = lanes.map((lane) => ({ ...lane, steps: [], tokens: 0 }));
    this.tabs.replaceChildren(
      ...this.lanes.map((lane, number) => {
        const tab = button(lane.title, `Steps of ${lane.title}`, () => this.showLane(number));
        tab.dataset.hue = hueOf(lane);
        tab.dataset.lane = lane.lane;
        return tab;
      }),
    );
    this.node.dataset.empty = "true";
    delete this.node.dataset.step;
    this.words.textContent = NO_STEP;
    // Servers send little of what the preview explains.
    this.rest.replaceChildren(...(lanes.every(({ served }) => served) ? [] : drawPreview()));
  }

  /** @param {ReadStep[]} steps */
  addSteps(steps) {
    for (const { lane: index, at, event } of steps) {
      const lane = this.lanes[index];
      lane.steps.push({ event, at, tokensBefore: lane.tokens });
      lane.tokens += event.emitted.length;
    }
  }

  // Marks the tab of the current lane.
  markTab() {
    const { lane } = this.current;
    this.node.dataset.lane = this.lanes[lane].lane;
    this.tabs
      .querySelectorAll("button")
      .forEach((tab, number) => tab.setAttribute("aria-pressed", String(number === lane)));
  }

  // The race is over: shows the step to look at first.
  showLongest() {
    const { lane, step } = findLongest(this.lanes, this.results);
    this.show(lane, step);
  }

  // Shows the step under the cursor. While a race plays, shows the current lane's latest step instead: if the lane
  // changed with every step, no tree could be read.
  follow(lane, step) {
    if (!this.player.playing && !this.player.live) return this.show(lane, step);
    if (!this.visible) return undefined;
    const { steps } = this.lanes[this.current.lane];
    const next = steps.findIndex(({ at }) => at > this.player.time);
    return this.show(this.current.lane, next < 0 ? steps.length - 1 : next - 1);
  }

  // Shows another lane, at the step that it took at the same race time.
  showLane(lane) {
    const time = this.lanes[this.current.lane].steps[this.current.step]?.at ?? 0;
    const { steps } = this.lanes[lane];
    const step = steps.findIndex(({ at }) => at >= time);
    this.current = { lane, step: 0 };
    this.markTab();
    if (this.player.live) return;
    this.seek(step < 0 ? steps.length - 1 : step);
  }

  seek(step) {
    const { lane } = this.current;
    if (!this.lanes[lane]?.steps[step]) return;
    this.show(lane, step, true);
    send(this.stage, "seek", { lane, step });
  }

  // Shows a step. Unless it is to be drawn `now`, draws at most every TREE_PERIOD_MS, because a replay calls this
  // often; the last step is always drawn.
  show(lane, step, now = false) {
    if (!this.lanes[lane]?.steps[step]) return;
    this.current = { lane, step };
    clearTimeout(this.timer);
    const delay = now ? 0 : Math.max(0, (this.drawnAt ?? 0) + TREE_PERIOD_MS - performance.now());
    if (delay) this.timer = setTimeout(() => this.draw(), delay);
    else this.draw();
  }

  draw() {
    this.drawnAt = performance.now();
    const { lane, step } = this.current;
    const { steps, title, served } = this.lanes[lane];
    const { event, at } = steps[step];
    this.node.dataset.step = String(step);
    this.node.dataset.empty = "false";
    this.markTab();
    this.back.disabled = !step;
    this.next.disabled = step === steps.length - 1;
    const stepUnit = served && !served.chunks_are_steps ? "token" : "step";
    const unit = hasTokens({ served }) ? stepUnit : "chunk";
    this.place.textContent = `${unit} ${step + 1} of ${steps.length}`;
    const words = served ? describeServed(event, this.lanes[lane], at) : describeStep(event, title, at);
    if (hasTokens({ served })) this.drawTree(event, steps[step + 1]?.event, words);
    else {
      this.words.textContent = words;
      this.tree.replaceChildren();
      this.more.textContent = "";
    }
    // A server tells neither the times of a step's parts nor its mask.
    this.rest.replaceChildren(...(served ? [] : this.drawParts(event, steps, step)));
  }

  /**
   * @param {Step} event
   * @param {Step | undefined} nextEvent
   * @param {string} words
   */
  drawTree(event, nextEvent, words) {
    this.words.textContent = words;
    const tree = new Tree(event, nextEvent);
    this.tree.replaceChildren(tree.draw(words));
    // Show the root in the middle.
    this.tree.scrollTop = tree.nodes[0].y + NODE_PX / 2 - this.tree.clientHeight / 2;
    this.fadeEdges();
    this.more.textContent = tree.omitted ? `+${countOf(tree.omitted, "more node")}` : "";
  }

  /** @param {Step} event */
  drawTimesPart(event) {
    return this.drawPart("Time of this step", drawTimes(event.timing), "On the lane's own clock.");
  }

  /**
   * @param {Step} event
   * @param {LaneSteps["steps"]} steps
   * @param {number} step
   */
  drawParts(event, steps, step) {
    const parts = [this.drawTimesPart(event)];
    if (event.tree.tokens.length > 1) {
      parts.push(
        this.drawPart(
          "Attention mask",
          drawMask(event),
          "One row for each node, in draft order: it sees the filled ones, its ancestors, and all text before them.",
        ),
      );
    }
    if (event.checks?.length)
      parts.push(
        this.drawPart(
          "Rejection sampling",
          drawChecks(event),
          `A draft token stays with probability min(1, p/q): the coin decides.${
            event.checked_nodes ? " After a rejection, p becomes max(p - q, 0), normalised." : ""
          }`,
        ),
      );
    const facts = Object.entries(event.note?.facts ?? {});
    if (facts.length) {
      parts.push(
        this.drawPart(
          "Drafter details",
          table(
            ["", ""],
            facts.map(([name, fact]) => [name, String(fact).slice(0, 80)]),
            "facts",
          ),
          "",
        ),
      );
    }
    /** @type {Map<string, NoteRow[]>} */
    const groups = new Map();
    for (const row of event.note?.rows ?? []) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
    for (const [group, rows] of groups) {
      if (group === "Trajectory")
        parts.push(
          this.drawPart(
            group,
            drawTrajectory(steps, step),
            "Each step's draft tokens, at their positions in the answer; they become final from the left.",
            true,
          ),
        );
      else parts.push(this.drawPart(group, drawNoteRows(event, rows), GROUP_WORDS[group] ?? "", true));
    }
    return parts;
  }

  // A part below the tree. `wide`: it fills a row, because its table is wide.
  drawPart(title, body, words, wide) {
    const node = make("div", wide ? "part wide" : "part");
    const box = make("div", "scroller");
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", title);
    box.append(body);
    node.append(make("h3", "", title), box, ...(words ? [make("p", "", words)] : []));
    return node;
  }

  // Highlights the node under the pointer in the tree and in the mask.
  highlight(node) {
    const number = node?.getAttribute("data-node");
    if (number === this.highlighted) return;
    this.highlighted = number;
    for (const element of this.node.querySelectorAll("[data-node]"))
      element.classList.toggle("pointed", element.getAttribute("data-node") === number);
  }
}
