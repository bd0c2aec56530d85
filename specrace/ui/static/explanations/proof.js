// The proof that the lanes print the same text: their texts merged into one, with a mark below each token for each lane
// that printed it. Where a lane differs, the text splits.
/** @import { PlayedReel } from "../stage/reel.js" */
import { button, make } from "../lib/dom.js";
import { hasTokens, hueOf } from "../lib/lanes.js";
import { REDUCED_MOTION } from "../lib/motion.js";
import { visibleText } from "../lib/pieces.js";

// How long the text takes to appear and then, if the proof opened by itself, how long it stays.
const SHOW_MS = 4000;
const READ_MS = 4000;
// How many tokens of a branch are shown.
const BRANCH_TOKENS = 8;
// The largest letter size as a share of the width, and the smallest sizes on a large screen and on a phone.
const MAX_LETTER_SHARE = 1 / 26;
const MIN_LETTER_PX = 24;
const MIN_PHONE_LETTER_PX = 20;
const NO_RACE = "The proof compares the lanes of a race: run one first, or open a recorded one.";
const ALONE = "There is nothing to compare: no other lane is meant to print vanilla's text.";

// Compares the texts of a race's lanes. Returns {lanes, others, texts, referred, tokens, splits, same, total}: `lanes`
// are the compared lanes, vanilla first. Of the other lanes only titles are given: `others` of lanes under rejection
// sampling (their badge is "law"), `texts` of servers that send no token ids, and `referred` of lanes that are compared
// with a server, the last two with the words of their badges. `tokens` are vanilla's, each with the lanes that agree up
// to it. `splits` says where lanes leave vanilla's text. The first `same` of `total` tokens are equal in all `lanes`.
/** @param {PlayedReel} reel */
export function compareTexts(reel) {
  const lanes = reel.head.lanes.map((lane, index) => ({ ...lane, badge: reel.results[index].badge, tokens: [] }));
  for (const { lane, event } of reel.steps)
    event.emitted.forEach((id, index) => lanes[lane].tokens.push({ id, text: visibleText(event.texts[index]) }));
  const others = lanes.filter(({ badge }) => badge[0] === "law").map(({ title }) => title);
  const texts = lanes.filter((lane) => !hasTokens(lane)).map(({ title, badge }) => `${title} (${badge[1]})`);
  const servers = lanes.filter((lane) => hasTokens(lane) && lane.reference);
  const referred = servers.map(({ title, badge }) => `${title} (${badge[1]})`);
  const eligible = lanes.filter((lane) => lane.badge[0] !== "law" && hasTokens(lane) && !lane.reference);
  const base = eligible[0].tokens;
  const compared = eligible.map((lane) => ({ ...lane, same: countAgreeing(base, lane.tokens) }));
  const same = Math.min(...compared.map((lane) => lane.same));
  // The lanes of a stopped race have different lengths, and are compared up to the shortest.
  const stopped = reel.phase === "stopped";
  const lengths = compared.map((lane) => lane.tokens.length);
  return {
    lanes: compared,
    others,
    texts,
    referred,
    tokens: base.map(({ text }, index) => ({ text, lanes: compared.map((lane) => index < lane.same) })),
    splits: findSplits(compared, stopped),
    same,
    total: stopped ? Math.min(...lengths) : Math.max(...lengths),
  };
}

// How many of the first tokens are the same in both lists.
function countAgreeing(base, tokens) {
  let same = 0;
  while (same < tokens.length && tokens[same].id === base[same]?.id) same++;
  return same;
}

// The positions at which lanes leave vanilla's text: {at, branches: [{titles, text, words}]}, vanilla's branch first.
function findSplits(lanes, stopped) {
  const [base] = lanes;
  // In a stopped race a text that is merely shorter than vanilla's does not differ.
  const lengthOf = stopped ? Math.min : Math.max;
  const differing = lanes.filter(({ same, tokens }) => same < lengthOf(tokens.length, base.tokens.length));
  const positions = [...new Set(differing.map(({ same }) => same))].sort((a, b) => a - b);
  return positions.map((at) => {
    const leaving = differing.filter(({ same }) => same === at);
    const staying = lanes.filter(({ same }) => same > at);
    const branch = (list, tokens, words) => ({
      titles: list.map(({ title }) => title),
      text: readBranch(tokens, at),
      words,
    });
    const branches = new Map();
    for (const lane of leaving) {
      const next = lane.tokens[at]?.id;
      branches.set(next, [...(branches.get(next) ?? []), lane]);
    }
    return {
      at,
      branches: [
        branch(staying, base.tokens, ""),
        ...[...branches.values()].map((list) => branch(list, list[0].tokens, list[0].badge[1])),
      ],
    };
  });
}

// The next tokens of a branch as one line of text.
function readBranch(tokens, at) {
  const words = tokens.slice(at, at + BRANCH_TOKENS).map((token) => token.text);
  const text = words.join("").trim().replaceAll("\n", "↵");
  return `${text}${tokens.length > at + BRANCH_TOKENS ? " …" : ""}`;
}

// How many tokens are the same, of the `shown` ones that the page shows so far.
export function describeCount({ lanes, same, total }, shown = total) {
  const soFar = shown < total ? " so far" : "";
  return `${Math.min(same, shown)} of ${shown} tokens the same in all ${lanes.length} lanes${soFar}`;
}

// What is said about the lanes whose tokens are not compared; "" if there are none.
export function describeOthers({ others, texts, referred }) {
  const sampled = `Not compared, for rejection sampling keeps the distribution, not the text: ${others.join(", ")}.`;
  const untokenized = `Compared as texts, for their servers send no token ids: ${texts.join(", ")}.`;
  const apart = `Compared with a server, not with vanilla: ${referred.join(", ")}.`;
  return [others.length && sampled, texts.length && untokenized, referred.length && apart].filter(Boolean).join(" ");
}

export class Proof {
  // `announce` shows a sentence on the page.
  constructor(host, announce) {
    this.announce = announce;
    this.node = make("dialog", "proof");
    this.node.setAttribute("aria-label", "The proof");
    this.lanes = make("p", "proof-lanes");
    this.text = make("div", "proof-text");
    this.text.tabIndex = 0;
    // The text runs in the direction of its script.
    this.text.dir = "auto";
    this.count = make("p", "proof-count");
    this.notes = make("p", "proof-notes");
    const head = make("header");
    head.append(
      make("h2", "", "The same text?"),
      this.lanes,
      button("Again", "Show it again", () => this.play()),
      button("Close", "Close (Esc)", () => this.node.close()),
    );
    const foot = make("footer");
    foot.append(this.count, this.notes);
    this.node.append(head, this.text, foot);
    host.append(this.node);
    this.node.addEventListener("close", () => cancelAnimationFrame(this.playing));
    this.node.addEventListener("keydown", (event) => {
      if (event.key !== "v" || event.ctrlKey || event.metaKey || event.altKey) return;
      // Otherwise the page's own handler would open the dialog again.
      event.stopPropagation();
      this.node.close();
    });
  }

  // `inTour`: the tour's words stay visible below, and its buttons can be pressed.
  open(reel, inTour = false) {
    if (!reel?.results?.length) return this.announce(NO_RACE);
    this.proof = compareTexts(reel);
    if (this.proof.lanes.length < 2) return this.announce(ALONE);
    this.drawTexts();
    this.node.dataset.tour = String(inTour);
    if (inTour) this.node.show();
    else this.node.showModal();
    this.fit();
    return this.play();
  }

  drawTexts() {
    // The count is filled before the text, because the text gets the remaining height.
    this.count.textContent = describeCount(this.proof);
    const { lanes, tokens, splits } = this.proof;
    this.lanes.replaceChildren(...lanes.map((lane) => labelLane(lane)));
    this.notes.textContent = describeOthers(this.proof);
    const forks = new Map(splits.map((split) => [split.at, drawSplit(split)]));
    this.shown = [];
    this.text.replaceChildren();
    let word;
    for (let index = 0; index <= tokens.length; index++) {
      const fork = forks.get(index);
      if (fork) this.text.append(fork);
      if (fork) this.shown.push(fork);
      // After vanilla's last token there may still be a split, if another lane's text is longer.
      if (index === tokens.length) break;
      const token = drawToken(tokens[index], lanes);
      if (!word || fork || /^\s/.test(tokens[index].text)) this.text.append(" ", (word = make("span", "proof-word")));
      word.append(token);
      this.shown.push(token);
    }
  }

  // Makes the letters as large as possible so that the whole text fits. A text that is too long scrolls.
  fit() {
    const { style, clientWidth, clientHeight } = this.text;
    const smallest = clientWidth < 900 ? MIN_PHONE_LETTER_PX : MIN_LETTER_PX;
    for (let size = Math.max(smallest, Math.floor(clientWidth * MAX_LETTER_SHARE)); size >= smallest; size -= 2) {
      style.fontSize = `${size}px`;
      if (this.text.scrollHeight <= clientHeight) return;
    }
  }

  // Opens the proof for a moment. It stays open if somebody clicks it or presses a key.
  flash(reel) {
    if (document.querySelector("dialog[open]") || compareTexts(reel).lanes.length < 2) return;
    this.open(reel);
    const close = setTimeout(() => this.node.close(), SHOW_MS + READ_MS);
    for (const name of ["pointerdown", "keydown", "close"])
      this.node.addEventListener(name, () => clearTimeout(close), { once: true });
  }

  play() {
    cancelAnimationFrame(this.playing);
    this.text.scrollTop = 0;
    for (const node of this.shown) node.classList.add("away");
    this.numShown = 0;
    if (REDUCED_MOTION.matches) return this.reveal(this.shown.length);
    this.start = performance.now();
    return this.tick();
  }

  tick() {
    const share = Math.min(1, (performance.now() - this.start) / SHOW_MS);
    this.reveal(Math.round(share * this.shown.length));
    if (share < 1) this.playing = requestAnimationFrame(() => this.tick());
  }

  reveal(count) {
    for (const node of this.shown.slice(this.numShown, count)) node.classList.remove("away");
    this.numShown = count;
    const { proof } = this;
    const all = count === this.shown.length;
    this.count.textContent = describeCount(
      proof,
      all ? proof.total : this.shown.slice(0, count).filter((node) => !node.matches(".fork")).length,
    );
    this.count.dataset.state = proof.same < proof.total ? "differs" : "same";
    if (!REDUCED_MOTION.matches) this.shown[count - 1]?.scrollIntoView({ block: "nearest" });
    this.node.dataset.done = String(all);
  }
}

function labelLane(lane) {
  const node = make("span", "", lane.title);
  const mark = make("i");
  mark.dataset.hue = hueOf(lane);
  node.prepend(mark);
  return node;
}

// Draws a token, with a line below it for each lane that printed it.
function drawToken({ text, lanes: agreeing }, lanes) {
  const node = make("span", "proof-token", (text.trim() ? text.trimStart() : text).replaceAll("\n", "↵"));
  const marks = make("span", "marks");
  lanes.forEach((lane, index) => {
    const mark = make("i", agreeing[index] ? "" : "none");
    mark.dataset.hue = hueOf(lane);
    marks.append(mark);
  });
  node.append(marks);
  return node;
}

function drawSplit({ branches }) {
  const node = make("div", "fork");
  for (const { titles, text, words } of branches) {
    const line = make("p");
    line.append(make("b", "", titles.join(", ")), make("span", "branch", text || "(the end)"), make("em", "", words));
    node.append(line);
  }
  return node;
}
